"""Making a reference oracle: is it the model that is served, and how far do its numbers move?

The A/A run: the same requests twice on the idle server. The server's logprobs are compared with its
own and with those of our engine on the same tokens. Where the server gives no logprobs, our engine
computes the same tokens in bf16 too, and the distance from fp32 stands for the server's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.oracles.band import BAND_CAP, Band, moves, noise, tops
from harness.oracles.flips import CalmRate
from harness.oracles.reference import ReferenceOracle
from harness.oracles.reference_model import Ids, ReferenceModel
from harness.oracles.reference_prompts import ReferencePrompts
from harness.targets.target import TargetUnusable
from harness.transcript import Ending, RequestTranscript
from workloads.workload import WorkloadRequest

if TYPE_CHECKING:
    from harness.checks.asker import Asker

_REQUESTS: Final = 8
_TOKENS: Final = 32
_TOP: Final = 5
# Of the same model a sick server still gets some tokens right when it is idle; of another, few.
_LEAST_RIGHT: Final = 0.5


@dataclass(slots=True)
class _AloneRun:
    """One calibration request: asked twice, and the server's tokens beside our scores."""

    request: WorkloadRequest
    first: RequestTranscript
    second: RequestTranscript
    gaps: list[float] = field(default_factory=list)
    distances: list[float] = field(default_factory=list)


async def reference_oracle(
    asker: Asker, folder: Path, source: str | None = None
) -> ReferenceOracle:
    """Load the checkpoint and calibrate on the idle server.

    Raises TargetUnusable where the server serves another model, ValueError where ``folder`` is no
    checkpoint that our engine loads; each with one sentence.
    """
    model = ReferenceModel.load(folder)
    prompts = await _prompts(asker, model, folder)
    oracle = ReferenceOracle(asker, model, prompts, source or folder.name)
    oracle.band = Band(None, None, 0, 0, BAND_CAP)  # while measuring
    runs = [await _alone_run(asker, oracle, number) for number in range(_REQUESTS)]
    gaps = [gap for run in runs for gap in run.gaps]
    right = sum(gap <= BAND_CAP for gap in gaps)
    if not gaps or right < _LEAST_RIGHT * len(gaps):
        raise TargetUnusable(
            f"{asker.target.name} does not serve {folder.name}: of {len(gaps)} tokens only {right} "
            "are near that model's likeliest; give the folder of the checkpoint that it serves"
        )
    oracle.band = await _band(runs, model, folder, prompts)
    flips = sum(0 < gap <= oracle.granted for gap in gaps)
    oracle.calm = CalmRate(flips, sum(gap <= oracle.granted for gap in gaps))
    return oracle


async def _prompts(asker: Asker, model: ReferenceModel, folder: Path) -> ReferencePrompts:
    """Prompts as the server counts them: it may put a BOS in front that the tokenizer does not."""
    prompts = ReferencePrompts(model.codec, model.model.vocab_size)
    prompt = prompts.prompt(12, "count")
    request = WorkloadRequest(
        "count", prompt_text=prompt.text, params={"max_tokens": 1, "temperature": 0}
    )
    answer = await asker.one(request, "calibration")
    counted = answer.usage.prompt_tokens if answer.usage else None
    if answer.ending is not Ending.COMPLETE:
        raise TargetUnusable(f"{asker.target.name} fails when idle: {answer.error}")
    ours = len(prompt.ids or ())
    if counted in (None, ours):
        return prompts
    if counted == ours + 1 and prompts.bos_tokens == 0 and model.model.bos_id is not None:
        return ReferencePrompts(model.codec, model.model.vocab_size, model.model.bos_id)
    raise TargetUnusable(
        f"{asker.target.name} does not serve {folder.name}: it counts {counted} tokens in a prompt "
        f"of {ours}; give the folder of the checkpoint that it serves"
    )


async def _alone_run(asker: Asker, oracle: ReferenceOracle, number: int) -> _AloneRun:
    """Ask twice; score the server's tokens, and hold its logprobs to ours."""
    prompt = oracle.prompt(8 + 17 * number, f"band {number}")
    params = {"max_tokens": _TOKENS, "temperature": 0, "logprobs": _TOP}
    request = WorkloadRequest("q", prompt_text=prompt.text, params=params)
    answers = [await asker.one(request, "calibration") for _ in range(2)]
    if answers[0].ending is Ending.REFUSED:  # a server without logprobs may refuse the field
        bare = {k: v for k, v in params.items() if k != "logprobs"}
        request = WorkloadRequest("q", prompt_text=prompt.text, params=bare)
        answers = [await asker.one(request, "calibration") for _ in range(2)]
    run = _AloneRun(request, answers[0], answers[1])
    forced = await oracle.forced(request, answers[0])
    run.gaps = list(forced.gaps) + ([] if forced.wrong_at is None else [2 * BAND_CAP])
    run.distances = await _distances(oracle, run, forced.ids)
    return run


async def _distances(oracle: ReferenceOracle, run: _AloneRun, ids: Ids) -> list[float]:
    """How far the server's logprob of each of its tokens is from ours."""
    given = [p for chunk in run.first.first.chunks for p in chunk.logprobs or ()]
    rows = await oracle.model.forced(oracle.prompt_ids(run.request), ids)
    ours = [row.logprobs[t] for row, t in zip(rows, ids, strict=False)]
    if len(given) < len(ours):
        return []
    return [abs(a - b) for a, b in zip(given, ours, strict=False)]


async def _band(
    runs: Sequence[_AloneRun], model: ReferenceModel, folder: Path, prompts: ReferencePrompts
) -> Band:
    """The band of the A/A run. A gap is a difference of two logprobs: half of it stands for one."""
    pairs = [(run.first, run.second) for run in runs]
    differed = sum(a.first.text != b.first.text for a, b in pairs)
    shown = all(tops(first) for first, _ in pairs)
    gaps = [gap / 2 for run in runs for gap in run.gaps if gap > 0]
    distances = [d for run in runs for d in run.distances]
    if not distances:
        distances = await _bf16_distances(runs, model, folder, prompts)
    ours = noise([d for d in (*distances, *gaps) if d <= BAND_CAP])
    alone = noise(moves(pairs)) if shown else None
    return Band(alone, None, differed, len(pairs), ours)


async def _bf16_distances(
    runs: Sequence[_AloneRun], model: ReferenceModel, folder: Path, prompts: ReferencePrompts
) -> list[float]:
    """How far our own engine's logprobs in bf16 are from those in fp32, on the same prompts."""
    rough = ReferenceModel.load(folder, "bfloat16")
    found: list[float] = []
    for run in runs:
        prompt = prompts.encode(run.request.prompt_text or "")
        output = await model.greedy(prompt, _TOKENS)
        fine = await model.forced(prompt, output)
        coarse = await rough.forced(prompt, output)
        found += [
            abs(a.logprobs[t] - b.logprobs[t])
            for a, b, t in zip(fine, coarse, output, strict=False)
        ]
    return found
