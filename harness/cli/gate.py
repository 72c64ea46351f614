"""`isobatch gate`: is the head as good as the base? Exit 0 yes, 1 no, 2 cannot tell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.errors import ExitStatus, UserError

if TYPE_CHECKING:
    from harness.gate.guarded_metric import GuardedMetric

DEFAULT_OUT = Path("runs")


Results = Annotated[
    list[Path] | None, typer.Argument(help="BASE and HEAD result.json: compare stored runs.")
]
SideOption = Annotated[
    str | None, typer.Option(help="URL, or command line that serves ({port}: a free port).")
]
AgainstItself = Annotated[
    bool, typer.Option("--aa", help="Base against itself: is this machine quiet enough?")
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(help="ID[:STATISTIC]=DELTA%, as in tpot:p50=5%; may be repeated."),
]
Checks = Annotated[
    str, typer.Option(help="Chapters or check ids run on both sides first; empty for none.")
]


Simulate = Annotated[
    bool, typer.Option("--simulate", help="Count how often the rule errs on synthetic pairs.")
]


def command(
    results: Results = None,
    base: SideOption = None,
    head: SideOption = None,
    aa: AgainstItself = False,
    simulate: Simulate = False,
    pairs: Annotated[int, typer.Option(min=5, help="Pairs to measure.")] = 10,
    preset: Annotated[str, typer.Option(help="The load: a preset or a .toml recipe.")] = "ragged",
    requests: Annotated[int | None, typer.Option(min=1, help="Requests a side a pair.")] = None,
    metric: Metrics = None,
    checks: Checks = "EQV,ISO",
    model: Annotated[str | None, typer.Option(help="Model id, if a server has several.")] = None,
    seed: Annotated[int, typer.Option(help="The first pair's seed; each pair has its own.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the run's own folder.")] = DEFAULT_OUT,
) -> None:
    """Decide whether HEAD is a regression of BASE, measured in interleaved pairs.

    Correctness first: a check that passes on the base and fails on the head is a regression.
    Then time: a metric fails when the data speak for a slowdown beyond its delta (throughput 3%,
    median TTFT and TPOT 5%, p99 chunk gap 15%), Holm over all of them, intervals over pairs.

    Exit status: 0 equivalent or better, 1 regression, 2 inconclusive or unusable. Two stored
    results can be compared too; that is no paired gate, and the output says so.
    """
    metrics = parsed_metrics(metric or [])
    if simulate:
        raise typer.Exit(_simulate(metrics, pairs))
    if results:
        raise typer.Exit(_compare_stored(results, metrics, base, head))
    if base is None or (head is None and not aa):
        raise UserError("give --base and --head, or --base and --aa, or two result files")
    if aa and head is not None:
        raise UserError("--aa measures the base against itself: leave --head out")
    from harness.cli.gate_run import GateRun

    run = GateRun(
        base=base,
        head=base if head is None else head,
        pairs=pairs,
        preset=preset,
        requests=requests,
        metrics=metrics,
        checks="" if aa else checks,
        model=model,
        seed=seed,
        out=out,
    )
    raise typer.Exit(run.noise_status() if aa else run.gate_status())


def parsed_metrics(texts: list[str]) -> tuple[GuardedMetric, ...]:
    """The guarded metrics: those named, or the default four. Raises UserError."""
    from harness.gate.guarded_metric import DEFAULT_METRICS, GuardedMetric

    try:
        metrics = tuple(GuardedMetric.parse(text) for text in texts)
    except ValueError as error:
        raise UserError(f"--metric: {error}") from None
    return metrics or DEFAULT_METRICS


def _simulate(metrics: tuple[GuardedMetric, ...], pairs: int) -> ExitStatus:
    """Print outcome shares by noise and true slowdown, 10,000 pairs a line."""
    from harness.cli.gate_table import print_rates
    from harness.gate.simulation import NOISES, simulate

    print_rates(
        {
            (name, slowdown): simulate(
                slowdown=slowdown,
                noise=noise,
                pairs=pairs,
                gates=max(10_000 // pairs, 1),
                seed=0,
                metrics=metrics,
            )
            for name, noise in NOISES.items()
            for slowdown in (0.0, 0.03, 0.05, 0.10, 0.20)
        },
        pairs,
    )
    return ExitStatus.OK


def _compare_stored(
    results: list[Path], metrics: tuple[GuardedMetric, ...], base: str | None, head: str | None
) -> ExitStatus:
    from harness.cli.gate_table import print_comparison
    from harness.gate.decision import Outcome
    from harness.gate.stored import compare
    from harness.results.document import read_result

    if len(results) != 2 or base or head:
        raise UserError("give exactly two result files, BASE and HEAD, and no --base or --head")
    try:
        documents = [read_result(path) for path in results]
    except FileNotFoundError as error:
        raise UserError(f"there is no {error.filename}") from None
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from None
    comparison = compare(documents[0], documents[1], metrics)
    print_comparison(comparison)
    return {Outcome.REGRESSION: ExitStatus.FAILED, Outcome.EQUIVALENT: ExitStatus.OK}.get(
        comparison.outcome, ExitStatus.UNUSABLE
    )
