"""Chooses the oracle for a server: by what the user says, the model's name, or its behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.cli.errors import UserError
from harness.oracles.itself import calibrated_self_oracle
from harness.oracles.oracle import Oracle
from harness.oracles.probe import ProbeOracle
from harness.targets.target import TargetUnusable
from reference_engine.probe import VARIANTS, ProbeConfig, load_probe_config
from workloads.workload import WorkloadRequest

if TYPE_CHECKING:
    from harness.checks.asker import Asker

ORACLES: Final = ("auto", "probe", "reference", "self")
_MOST_QUESTIONS: Final = 3
_PROMPTS_TRIED: Final = 24
_QUESTION_TOKENS: Final = 40


@dataclass(frozen=True, slots=True)
class OracleChoice:
    """``kind`` is one of `ORACLES`; ``probe`` a variant's name or a folder, ``reference`` a folder.

    A folder is what the server serves, in the Hugging Face layout.
    """

    kind: str = "auto"
    probe: str | None = None
    reference: str | None = None


async def choose_oracle(asker: Asker, choice: OracleChoice, model: str | None) -> Oracle:
    """The strongest oracle that applies. Raises UserError or TargetUnusable where none does."""
    if choice.kind == "self":
        return await calibrated_self_oracle(asker)
    if choice.kind == "reference" or (choice.reference is not None and choice.kind == "auto"):
        return await _given_reference(asker, choice.reference, model)
    if choice.probe is not None:
        return ProbeOracle(named_probe(choice.probe))
    config = probe_by_model_name(model)
    if config is None and choice.kind == "auto" and (folder := known_checkpoint(model)):
        return await _reference_or_self(asker, folder)
    config = config or await probe_by_behaviour(asker)
    if config is not None:
        return ProbeOracle(config)
    if choice.kind == "auto":
        return await calibrated_self_oracle(asker)
    raise TargetUnusable(
        f"the model {model or 'served'} is no probe that isobatch knows; serve one made by "
        "`isobatch probe export DIR`, name it with --probe, or judge with --oracle self"
    )


async def _given_reference(asker: Asker, given: str | None, model: str | None) -> Oracle:
    """The reference oracle that was asked for. Raises UserError, TargetUnusable."""
    from harness.oracles.reference_calibration import reference_oracle

    folder = Path(given) if given is not None else known_checkpoint(model)
    if folder is None:
        raise UserError(
            f"no local checkpoint of {model or 'the served model'} is known; give its folder with "
            "--reference DIR, or fetch one that is served with `isobatch model fetch`"
        )
    try:
        return await reference_oracle(asker, folder)
    except ValueError as error:
        raise UserError(f"--reference: {error}") from None


async def _reference_or_self(asker: Asker, folder: Path) -> Oracle:
    """The reference where the server proves to serve ``folder``, else the server itself."""
    from harness.oracles.reference_calibration import reference_oracle

    try:
        return await reference_oracle(asker, folder)
    except (ValueError, TargetUnusable) as error:
        return await calibrated_self_oracle(asker, f"; not by {folder.name}: {error}")


def known_checkpoint(model: str | None) -> Path | None:
    """The local folder of a served model: its id is a folder, or names one that was fetched."""
    from reference_engine.pretrained import models_folder

    if model is None:
        return None
    served = Path(model)
    if (served / "config.json").is_file():
        return served
    fetched = [f.parent for f in sorted(models_folder().glob("*/config.json"))]
    named = [f for f in fetched if f.name.lower() in served.name.lower()]
    return max(named, key=lambda folder: len(folder.name), default=None)


def named_probe(name: str) -> ProbeConfig:
    """The configuration of a variant or of an exported folder. Raises UserError."""
    if name in VARIANTS:
        return VARIANTS[name]
    folder = Path(name)
    if folder.is_dir():
        try:
            return load_probe_config(folder)
        except (OSError, ValueError) as error:
            raise UserError(f"{folder} is no exported probe: {error}") from None
    variants = ", ".join(VARIANTS)
    raise UserError(f"no probe {name!r}: give a variant ({variants}) or an exported folder")


def probe_by_model_name(model: str | None) -> ProbeConfig | None:
    """The variant whose name the model id contains; the longest, where several do."""
    named = [c for c in VARIANTS.values() if model is not None and c.name in model]
    return max(named, key=lambda config: len(config.name), default=None)


async def probe_by_behaviour(asker: Asker) -> ProbeConfig | None:
    """The variant that answers a few prompts as the model does.

    Each prompt is one that the variants still in question answer differently.
    """
    candidates = [ProbeOracle(config) for config in VARIANTS.values()]
    for _ in range(_MOST_QUESTIONS):
        request, texts = await _telling_question(candidates)
        given = (await asker.one(request, "which probe?")).first.text
        candidates = [c for c, text in zip(candidates, texts, strict=True) if text == given]
        if len(candidates) < 2 or len(set(texts)) == 1:
            break
    return candidates[0].config if candidates else None


async def _telling_question(
    candidates: Sequence[ProbeOracle],
) -> tuple[WorkloadRequest, list[str]]:
    """The prompt, of some tried, that the candidates answer in the most different ways."""
    best = WorkloadRequest("which", prompt_text=""), list[str]()
    for content in range(_PROMPTS_TRIED):
        prompt = candidates[0].prompt(20 + 7 * content, f"which probe? {content}")
        request = WorkloadRequest(
            "which",
            prompt_text=prompt.text,
            params={"max_tokens": _QUESTION_TOKENS, "temperature": 0},
        )
        texts = [(await c.expect(request)).text for c in candidates]
        if len(set(texts)) > len(set(best[1])):
            best = request, texts
        if len(set(texts)) == len(candidates):
            break
    return best
