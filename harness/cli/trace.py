"""``isobatch trace``: look at a request trace, and fit a recipe to it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.errors import UserError
from workloads.trace import Trace

app = typer.Typer(no_args_is_help=True)

_File = Annotated[Path, typer.Argument(help="Azure or BurstGPT CSV, Mooncake or own JSONL; .gz.")]


@app.command()
def describe(path: _File) -> None:
    """Print rate, lengths, burstiness and prefix reuse of a trace."""
    from itertools import pairwise
    from statistics import fmean, pstdev

    from workloads.fit import WINDOWS_S, dispersion

    trace = _read(path)
    times = [row.arrival_s for row in trace.rows]
    print(f"requests              {len(times)} over {times[-1]:.0f} s")
    for name in ("prompt_tokens", "output_tokens"):
        lengths = sorted(getattr(row, name) for row in trace.rows)
        marks = " ".join(
            f"p{q:g} {lengths[min(len(lengths) - 1, int(q / 100 * len(lengths)))]}"
            for q in (50, 90, 99)
        )
        print(f"{name:21} mean {fmean(lengths):.0f} {marks} max {lengths[-1]}")
    gaps = [b - a for a, b in pairwise(times)]
    if gaps and fmean(gaps) > 0:
        print(f"gap variation         {pstdev(gaps) / fmean(gaps):.2f} (Poisson: 1)")
    curve = [(w, dispersion(times, w)) for w in WINDOWS_S]
    text = " ".join(f"{w:g}s {d:.1f}" for w, d in curve if d is not None)
    print(f"index of dispersion   {text} (Poisson: 1)")
    share = trace.prefix_hit_share()
    if share is not None:
        print(f"prefix hits           {share:.1%} of blocks with an infinite cache")


@app.command()
def fit(
    path: _File,
    title: Annotated[str, typer.Option(help="Title of the recipe.")] = "",
    source: Annotated[str, typer.Option(help="Where the trace comes from.")] = "",
    licence: Annotated[str, typer.Option(help="The trace's licence.")] = "",
    requests: Annotated[int, typer.Option(min=1, help="Requests of the recipe.")] = 1000,
) -> None:
    """Print a recipe (TOML) whose arrivals and lengths are fitted to the trace."""
    from workloads.fit import recipe_toml

    trace = _read(path)
    title = title or f"fitted to {path.name}"
    print(
        recipe_toml(
            trace, title=title, source=source or path.name, licence=licence, requests=requests
        ),
        end="",
    )


def _read(path: Path) -> Trace:
    from workloads.trace_files import read_trace

    try:
        return read_trace(path)
    except ValueError as error:
        raise UserError(str(error)) from None
