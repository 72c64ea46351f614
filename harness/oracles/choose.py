"""Chooses the oracle for a server: by what the user says, the model's name, or its behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.cli.errors import UserError
from harness.oracles.oracle import Oracle
from harness.oracles.probe import ProbeOracle
from harness.targets.target import Target, TargetUnusable
from harness.transcript import Ending
from reference_engine.probe import VARIANTS, ProbeConfig, load_probe_config
from workloads.workload import Workload, WorkloadRequest

ORACLES: Final = ("auto", "probe")
_QUESTIONS: Final = ((9, 10), (23, 10), (40, 10))  # prompt tokens, output tokens


@dataclass(frozen=True, slots=True)
class OracleChoice:
    """``kind`` is auto, probe, reference or self; ``probe`` a variant's name or a folder."""

    kind: str = "auto"
    probe: str | None = None
    reference_model: str | None = None


async def choose_oracle(
    target: Target, choice: OracleChoice, model: str | None, params: Mapping[str, Any]
) -> Oracle:
    """The strongest oracle that applies. Raises UserError or TargetUnusable where none does."""
    if choice.probe is not None:
        return ProbeOracle(named_probe(choice.probe))
    config = probe_by_model_name(model) or await probe_by_behaviour(target, params)
    if config is not None:
        return ProbeOracle(config)
    raise TargetUnusable(
        f"the model {model or 'served'} is no probe that isobatch knows; serve one made by "
        "`isobatch probe export DIR`, or name it with --probe VARIANT or --probe DIR"
    )


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


async def probe_by_behaviour(target: Target, params: Mapping[str, Any]) -> ProbeConfig | None:
    """The variant that answers a few prompts as the model does.

    Raises TargetUnusable when the server does not answer completions at all.
    """
    matching = list(VARIANTS.values())
    for tokens, max_tokens in _QUESTIONS:
        prompts = [ProbeOracle(c).prompt(tokens, "which probe?") for c in matching]
        if not prompts:
            return None
        request = WorkloadRequest(
            "which",
            prompt_text=prompts[0].text,
            params={"max_tokens": max_tokens, "temperature": 0, **params},
        )
        transcript = await target.run(Workload((request,), origin="which probe?"))
        answer = transcript["which"]
        if answer.ending is not Ending.COMPLETE:
            raise TargetUnusable(
                f"{target.name} does not complete a plain request to /v1/completions: "
                f"{answer.error or answer.ending.value}"
            )
        expected = [(await ProbeOracle(c).expect(request)).text for c in matching]
        matching = [
            c for c, text in zip(matching, expected, strict=True) if text == answer.first.text
        ]
    return matching[0] if matching else None
