"""`isobatch probe prove --url`: a server that holds the probe against the integer rule."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.cli.errors import UserError

if TYPE_CHECKING:
    from harness.transcript import RequestTranscript, Transcript
    from reference_engine.probe import ProbeConfig
    from reference_engine.probe.rule import RuleAnswer
    from workloads.workload import Workload

FORMAT: Final = "isobatch.probe-served-proof/1"
_ANSWER_TOKENS: Final = 24
_LONGEST_REQUEST_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class ServedProof:
    """How a server's answers to ragged prompts compare with the rule.

    ``tokens`` are those of the right answers. An answer is wrong if its text, its finish reason or,
    where the server tells them, its ids are not the rule's; ``endings`` counts how requests ended,
    and one that is not complete is wrong, too. ``wrong_in`` counts the wrong ones by the first of
    these: ending, token ids, text, finish reason. ``ids_told`` answers came with token ids.
    """

    model: str
    weights: str
    prompts: int
    prompt_tokens: int
    tokens: int
    wrong: int
    wrong_in: dict[str, int]
    ids_told: int
    endings: dict[str, int]
    concurrency: int
    server: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """A plain JSON object."""
        return asdict(self)


def prove_served(
    config: ProbeConfig,
    url: str,
    *,
    model: str | None,
    weights: str,
    prompts: int,
    concurrency: int,
) -> ServedProof:
    """Ask the server at ``url`` for 24 tokens after each prompt, ``concurrency`` at a time.

    A server that takes prompts as text only is asked ``prompts`` others, of ASCII text.
    Raises UserError if it cannot be asked, or says that it serves another model than the probe.
    """
    from harness.targets.target import TargetUnusable
    from reference_engine.probe import Rule

    try:
        asked, transcript, server = asyncio.run(_asked(config, url, model, prompts, concurrency))
    except TargetUnusable as error:
        raise UserError(str(error)) from None
    rule = Rule(config)
    right = [rule.generate(ids, _ANSWER_TOKENS) for ids in asked]
    answers = list(transcript.requests.values())
    wrong = _wrong(config, answers, right)
    ends = [request.ending.value for request in answers]
    told = [bool(request.first.token_ids) for request in answers]
    return ServedProof(
        config.name,
        weights,
        len(asked),
        sum(len(ids) for ids in asked),
        sum(len(answer.token_ids) for answer in right),
        wrong.total(),
        dict(wrong),
        sum(told),
        dict(Counter(ends)),
        concurrency,
        server,
    )


def _wrong(
    config: ProbeConfig, answers: Sequence[RequestTranscript], right: Sequence[RuleAnswer]
) -> Counter[str]:
    """How many answers are not the rule's, by what differs first."""
    from reference_engine.probe import decode_tokens

    wrong: Counter[str] = Counter()
    for request, answer in zip(answers, right, strict=True):
        kept = tuple(i for i in answer.token_ids if i != config.eos_id)
        text = decode_tokens(config, kept).decode("utf-8", errors="replace")
        given = request.first.token_ids
        same_ids = not given or tuple(i for i in given if i != config.eos_id) == kept
        found = {
            "ending": request.ending.value == "complete",
            "token ids": same_ids,
            "text": request.first.text == text,
            "finish reason": request.first.finish_reasons == [answer.finish_reason],
        }
        wrong.update([what for what, same in found.items() if not same][:1])
    return wrong


async def _asked(
    config: ProbeConfig, url: str, model: str | None, prompts: int, concurrency: int
) -> tuple[list[list[int]], Transcript, dict[str, Any]]:
    """The prompts, all answers in their order, and what the server says of itself."""
    from harness.client.limits import Limits
    from harness.load.probe_prompts import ProbeSpelling, probe_served_as
    from harness.targets.http import HttpTarget
    from harness.targets.wording import TOKEN_ID_PROMPTS, find_wording
    from reference_engine.probe.proof import proof_prompts

    target = HttpTarget(url, model=model, limits=Limits(total_s=_LONGEST_REQUEST_S))
    try:
        found = await target.discover()
        if model is None and probe_served_as(target.model or "") != config:
            raise UserError(
                f"{url} serves {target.model!r}, not {config.name!r}; choose its --variant, or "
                "name the model with --model"
            )
        text = proof_prompts(config, prompts, printable=True)
        sample = _workload([max(text, key=len)], concurrency).requests[0]
        wording = target.wording = await find_wording(target, sample, ProbeSpelling(config))
        asked = text if TOKEN_ID_PROMPTS in wording.without else proof_prompts(config, prompts)
        transcript = await target.run(_workload(asked, concurrency))
    finally:
        await target.close()
    document = dict(found.documents[0]) if found.documents else {}
    said = {"model": target.model, "says": document, "header": found.server}
    return asked, transcript, {**said, "wording": wording.to_json()}


def _workload(prompts: Sequence[Sequence[int]], concurrency: int) -> Workload:
    from workloads.workload import Workload, WorkloadRequest

    params = {"max_tokens": _ANSWER_TOKENS, "temperature": 0}
    requests = tuple(
        WorkloadRequest(key=f"p{index}", prompt_ids=tuple(ids), params=params)
        for index, ids in enumerate(prompts)
    )
    return Workload(requests, origin="probe prove", concurrency=concurrency)
