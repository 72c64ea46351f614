"""`isobatch probe sensitivity`: how likely each kind of KV-cache fault is to change an answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Table

from harness.cli.errors import UserError
from harness.console import plain_console

if TYPE_CHECKING:
    from reference_engine.probe import ProbeConfig
    from reference_engine.probe.sensitivity.cache_faults import CacheFault
    from reference_engine.probe.sensitivity.measure import Detection, Rate

FORMAT: Final = "isobatch.probe-sensitivity/1"


def command(
    variant: Annotated[str, typer.Option(help="Which probe to break.")] = "eos",
    requests: Annotated[
        int, typer.Option(min=6, help="Requests for each of the three prompt lengths.")
    ] = 80,
    faults: Annotated[
        str | None, typer.Option(help="Only these kinds, comma-separated; all by default.")
    ] = None,
    prompts: Annotated[
        str, typer.Option(help="balanced (every sum ends near 0) or random prompts.")
    ] = "balanced",
    seed: Annotated[int, typer.Option(help="Of prompts and places.")] = 0,
    out: Annotated[Path, typer.Option(help="Where to make the result's folder.")] = Path("results"),
) -> None:
    """Break the KV cache of real runs in many ways and count how many answers change.

    Prints the detection probability per request at 8, 24 and 64 generated tokens with its 95%
    confidence interval, and writes it as JSON and as a table.
    """
    from reference_engine.probe.sensitivity.measure import measure, prompt_lengths

    config = _variant(variant)
    if prompts not in ("balanced", "random"):
        raise UserError(f"--prompts {prompts!r}: choose balanced or random")
    chosen = _chosen(config, faults)
    console = plain_console(highlight=True)
    found = []
    for detection in measure(
        config,
        chosen,
        requests_per_length=requests,
        balanced=prompts == "balanced",
        seed=seed,
    ):
        found.append(detection)
        at_24 = detection.rates[24]
        console.print(f"{detection.fault.name:22} {detection.fault.scope:10} {_cell(at_24)}")
    document = {
        "format": FORMAT,
        "model": config.name,
        "prompts": prompts,
        "prompt_tokens": list(prompt_lengths(config)),
        "requests_per_length": requests,
        "seed": seed,
        "faults": [detection.to_json() for detection in found],
    }
    folder = _write(out, f"probe-sensitivity-{variant}-{prompts}", document, found)
    console.print(_table(found))
    console.print(f"written to {folder}")


def _variant(name: str) -> ProbeConfig:
    from reference_engine.probe import VARIANTS

    if name not in VARIANTS:
        raise UserError(f"no probe variant {name!r}: choose from {', '.join(VARIANTS)}")
    return VARIANTS[name]


def _chosen(config: ProbeConfig, names: str | None) -> list[CacheFault]:
    from reference_engine.probe.sensitivity.fault_kinds import CONTROLS, kinds_for

    controls = {
        name: fault for name, fault in CONTROLS.items() if name == "healthy" or not config.windows
    }
    known = {**controls, **kinds_for(config)}
    wanted = list(known) if names is None else names.split(",")
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UserError(f"no cache fault {unknown[0]!r}: choose from {', '.join(known)}")
    return [known[name] for name in wanted]


def _cell(rate: Rate) -> str:
    low, high = rate.interval
    return f"{rate.value:.3f} ({low:.3f}-{high:.3f})"


def _rows(found: Sequence[Detection]) -> list[list[str]]:
    """The table's cells, the same on the terminal and in the file."""
    rows = []
    for detection in found:
        needed = detection.rates[24].requests_for_certainty
        rows.append(
            [
                detection.fault.name,
                detection.fault.sentence,
                detection.fault.scope.value,
                *(_cell(detection.rates[tokens]) for tokens in (8, 24, 64)),
                f"{detection.limit.value:.3f}",
                str(detection.missed),
                "-" if needed is None else str(needed),
            ]
        )
    return rows


_HEADINGS: Final = (
    "fault",
    "what is wrong",
    "where",
    "8 tokens",
    "24 tokens",
    "64 tokens",
    "limit",
    "missed",
    "requests for 0.9999",
)


def _table(found: Sequence[Detection]) -> Table:
    shown = [0, *range(2, len(_HEADINGS))]
    title = "Probability that one request's answer changes (95% interval)"
    table = Table(*(_HEADINGS[index] for index in shown), title=title)
    for row in _rows(found):
        table.add_row(*(row[index] for index in shown))
    return table


def _write(out: Path, name: str, document: dict[str, Any], found: Sequence[Detection]) -> Path:
    """Make a folder of its own for this measurement. Raises UserError if it can't be."""
    from harness.results.environment import environment, tool

    document["made_by"] = tool()
    document["environment"] = environment()
    folder = out / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    lines = [" | ".join(row) for row in [list(_HEADINGS), ["---"] * len(_HEADINGS), *_rows(found)]]
    try:
        folder.mkdir(parents=True)
        (folder / "sensitivity.json").write_text(json.dumps(document, indent=1) + "\n")
        (folder / "sensitivity.md").write_text("".join(f"| {line} |\n" for line in lines))
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}; choose --out") from None
    return folder
