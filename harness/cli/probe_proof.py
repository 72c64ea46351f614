"""`isobatch probe prove`: transformers' own model against the integer rule, with the margins."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from harness.cli.errors import ExitStatus, UserError
from harness.console import plain_console

FORMAT: Final = "isobatch.probe-proof/1"
_HEADINGS: Final = (
    "probe",
    "weights",
    "dtype",
    "prompts",
    "positions",
    "wrong",
    "answers",
    "wrong answers",
    "smallest margin",
    "largest output",
)


def command(
    variant: Annotated[str, typer.Option(help="Which probe, or `all`.")] = "eos",
    dtype: Annotated[str, typer.Option(help="In which dtype, or `all`.")] = "all",
    weights: Annotated[
        str,
        typer.Option(help="Weights as stored, or rounded to a GGUF type first: Q8_0, Q5_0, Q4_0."),
    ] = "stored",
    prompts: Annotated[int, typer.Option(min=1, help="Ragged prompts of 1 to 1,500 tokens.")] = 208,
    out: Annotated[Path, typer.Option(help="Where to make the result's folder.")] = Path("results"),
) -> None:
    """Prove that exported probes are their rule, on transformers' forward pass and `generate`.

    The exit status is 1 if any token was wrong.
    """
    from reference_engine.probe import DTYPES, VARIANTS, export_probe
    from reference_engine.probe.proof import proof_prompts, prove

    variants = _several(variant, tuple(VARIANTS), "probe variant")
    dtypes = _several(dtype, DTYPES, "dtype")
    _several(weights, ("stored", "Q8_0", "Q5_0", "Q4_0"), "kind of weights")
    console = plain_console(highlight=True)
    table, proofs = Table(*_HEADINGS), []
    for name in variants:
        config = VARIANTS[name]
        for kind in dtypes:
            with tempfile.TemporaryDirectory() as folder:
                export_probe(config, folder, kind)
                proof = prove(
                    config, folder, kind, proof_prompts(config, prompts), rounded_to=weights
                )
            proofs.append(proof)
            cells = [str(value) for value in list(proof.to_json().values())[:8]]
            cells += [f"{proof.smallest_margin:.2f}", f"{proof.largest_activation:.0f}"]
            table.add_row(*cells)
            console.print(" ".join(cells))
    console.print(table)
    folder_path = out / f"probe-proof-{variant}-{weights}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    _write(folder_path, [proof.to_json() for proof in proofs])
    console.print(f"written to {folder_path}")
    if not all(proof.holds for proof in proofs):
        raise typer.Exit(ExitStatus.FAILED)


def _several(asked: str, known: tuple[str, ...], noun: str) -> tuple[str, ...]:
    if asked == "all":
        return known
    if asked not in known:
        raise UserError(f"no {noun} {asked!r}: choose from {', '.join(known)}")
    return (asked,)


def _write(folder: Path, proofs: list[dict[str, object]]) -> None:
    from harness.results.environment import environment, tool

    document = {
        "format": FORMAT,
        "made_by": tool(),
        "environment": environment(),
        "proofs": proofs,
    }
    try:
        folder.mkdir(parents=True)
        (folder / "proof.json").write_text(json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}; choose --out") from None
