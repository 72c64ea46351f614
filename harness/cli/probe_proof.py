"""`isobatch probe prove`: transformers' own model against the integer rule, with the margins."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table

from harness.cli.errors import ExitStatus, UserError
from harness.console import plain_console

if TYPE_CHECKING:
    from reference_engine.probe.proof import Proof

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
        typer.Option(
            help="Weights as stored or rounded first, to int8, int4 (a scale a row), Q8_0, Q5_0 or "
            "Q4_0 (GGUF); `all` of these; or held by a library, as in torchao-int8, quanto-int4, "
            "bitsandbytes-int8."
        ),
    ] = "stored",
    prompts: Annotated[int, typer.Option(min=1, help="Ragged prompts of 1 to 1,500 tokens.")] = 208,
    context: Annotated[
        bool, typer.Option("--context", help="Instead one prompt that fills the stated context.")
    ] = False,
    url: Annotated[
        str | None,
        typer.Option(help="Ask this server, which holds the probe, instead of transformers."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="With --url: the model id to ask for.")] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, help="With --url: requests in flight at a time.")
    ] = 16,
    out: Annotated[Path, typer.Option(help="Where to make the result's folder.")] = Path("results"),
) -> None:
    """Prove that exported probes are their rule, on transformers' forward pass and `generate`.

    With --url a server is asked instead; --weights then names, in a word, how it stores them.
    The exit status is 1 if any token was wrong.
    """
    if url is not None:
        _prove_served(variant, weights, prompts, url, model, concurrency, out)
        return
    console = plain_console(highlight=True)
    table, proofs = Table(*_HEADINGS), []
    for proof in _proofs(variant, weights, dtype, 0 if context else prompts):
        proofs.append(proof)
        table.add_row(*_cells(proof))
        console.print(" ".join(_cells(proof)))
    console.print(table)
    kind = "context" if context else weights
    folder_path = out / f"probe-proof-{variant}-{kind}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    _write(folder_path, [proof.to_json() for proof in proofs])
    rows = [_HEADINGS, ("---",) * len(_HEADINGS), *(_cells(proof) for proof in proofs)]
    (folder_path / "proof.md").write_text("".join(f"| {' | '.join(row)} |\n" for row in rows))
    console.print(f"written to {folder_path}")
    if not all(proof.holds for proof in proofs):
        raise typer.Exit(ExitStatus.FAILED)


def _proofs(variant: str, weights: str, dtype: str, prompts: int) -> Iterator[Proof]:
    """One proof for each variant, kind of weights and dtype; no prompts mean a full context.

    Raises UserError.
    """
    from reference_engine.probe import DTYPES, VARIANTS, export_probe
    from reference_engine.probe.proof import context_prompt, proof_prompts, prove
    from reference_engine.probe.stored_weights import ROUNDED, WEIGHTS, missing_packages

    variants = _several(variant, tuple(VARIANTS), "probe variant")
    dtypes = _several(dtype, DTYPES, "dtype")
    kinds = ROUNDED if weights == "all" else _several(weights, WEIGHTS, "kind of weights")
    for missing in filter(None, map(missing_packages, kinds)):
        raise UserError(f"--weights {weights}: pip install {' '.join(missing)}")
    for name, kind_of_weights, kind in product(variants, kinds, dtypes):
        config = VARIANTS[name]
        with tempfile.TemporaryDirectory() as folder:
            export_probe(config, folder, kind)
            asked = proof_prompts(config, prompts) if prompts else [context_prompt(config)]
            yield prove(config, folder, kind, asked, weights=kind_of_weights)


def _cells(proof: Proof) -> tuple[str, ...]:
    cells = [str(value) for value in list(proof.to_json().values())[:8]]
    return (*cells, f"{proof.smallest_margin:.2f}", f"{proof.largest_activation:.0f}")


def _prove_served(
    variant: str,
    weights: str,
    prompts: int,
    url: str,
    model: str | None,
    concurrency: int,
    out: Path,
) -> None:
    from harness.cli import probe_served
    from reference_engine.probe import VARIANTS

    if variant not in VARIANTS:
        raise UserError(f"no probe variant {variant!r}: choose from {', '.join(VARIANTS)}")
    if not weights.replace("_", "").replace("-", "").isalnum():
        raise UserError(f"--weights {weights!r}: one word, such as f16 or Q8_0")
    config = VARIANTS[variant]
    proof = probe_served.prove_served(
        config,
        url,
        model=model,
        weights=weights,
        prompts=prompts,
        concurrency=concurrency,
    )
    console = plain_console(highlight=True)
    console.print(
        f"{proof.model} as {weights}: {proof.prompts} prompts, {proof.tokens} tokens, "
        f"{proof.wrong} answers wrong{_where(proof.wrong_in)}"
    )
    folder = out / f"probe-served-{variant}-{weights}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    _write(folder, [proof.to_json()], probe_served.FORMAT)
    console.print(f"written to {folder}")
    if proof.wrong:
        raise typer.Exit(ExitStatus.FAILED)


def _where(wrong_in: dict[str, int]) -> str:
    parts = [f"{count} in the {what}" for what, count in wrong_in.items()]
    return f" ({', '.join(parts)})" if parts else ""


def _several(asked: str, known: tuple[str, ...], noun: str) -> tuple[str, ...]:
    if asked == "all":
        return known
    if asked not in known:
        raise UserError(f"no {noun} {asked!r}: choose from {', '.join(known)}")
    return (asked,)


def _write(folder: Path, proofs: list[dict[str, object]], file_format: str = FORMAT) -> None:
    from harness.results.environment import environment, tool

    document = {
        "format": file_format,
        "made_by": tool(),
        "environment": environment(),
        "proofs": proofs,
    }
    try:
        folder.mkdir(parents=True)
        (folder / "proof.json").write_text(json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}; choose --out") from None
