"""How a gate's decision looks in a terminal and in a log."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.console import plain_console
from harness.gate.decision import Outcome
from harness.gate.paired_run import Pair
from harness.gate.report import GateReport
from harness.gate.simulation import Rates
from harness.gate.stored import Comparison
from harness.report.quantity import figures

_COLOURS = {
    Outcome.REGRESSION: "bold red",
    Outcome.EQUIVALENT: "green",
    Outcome.BETTER: "green",
    Outcome.INCONCLUSIVE: "magenta",
}


def percent(share: float | None) -> str:
    """A relative slowdown with its sign, or a dash."""
    return "\N{EN DASH}" if share is None else f"{share:+.1%}"


def print_pair(
    console: Console, pair: Pair, metrics: tuple[str, ...], slowdowns: list[str]
) -> None:
    """One line a pair, so that a long gate shows that it lives."""
    order = "base, head" if pair.base_first else "head, base"
    shown = ", ".join(f"{n} {s}" for n, s in zip(metrics, slowdowns, strict=True))
    console.print(f"pair {pair.number + 1:>3} ({order}): {shown}")


def print_report(console: Console, report: GateReport) -> None:
    """The table of metrics and the outcome with its reasons."""
    table = Table(show_edge=False, pad_edge=False)
    for title in ("metric", "delta", "slowdown", "90% interval", "noise", "outcome"):
        table.add_column(title, justify="left" if title in ("metric", "outcome") else "right")
    for d in report.decisions:
        table.add_row(
            d.metric.name,
            f"{d.metric.delta:.0%}",
            percent(d.slowdown),
            f"{percent(d.low)} to {percent(d.high)}",
            "\N{EN DASH}" if d.noise is None else f"{d.noise:.1%}",
            Text(d.outcome.value, _COLOURS[d.outcome]),
        )
    console.print(table)
    outcome = (report.outcome.value, _COLOURS[report.outcome])
    console.print(Text.assemble(outcome, f" over {report.pairs} pairs"))
    for reason in report.reasons:
        console.print(f"  {reason}")


def print_rates(rates: Mapping[tuple[str, float], Rates], pairs: int) -> None:
    """How simulated gates ended, a line a noise and true slowdown."""
    table = Table(show_edge=False, pad_edge=False, title=f"gates of {pairs} pairs")
    for title in ("noise", "true slowdown", *(o.value for o in Outcome)):
        table.add_column(title, justify="left" if title == "noise" else "right")
    for (noise, slowdown), found in rates.items():
        table.add_row(noise, f"{slowdown:.0%}", *(f"{found[o]:.1%}" for o in Outcome))
    plain_console().print(table)


def print_comparison(comparison: Comparison) -> None:
    """Stored runs side by side, and that this is no gate."""
    console = plain_console()
    table = Table(show_edge=False, pad_edge=False)
    for title in ("metric", "base", "head", "slowdown", "bounds"):
        table.add_column(title, justify="left" if title == "metric" else "right")
    for d in comparison.differences:
        bounds = {True: "apart", False: "overlap", None: "none stored"}[d.beyond_bounds]
        table.add_row(d.metric.name, figures(d.base), figures(d.head), percent(d.slowdown), bounds)
    console.print(table)
    if comparison.broken:
        console.print(f"checks that broke: {', '.join(comparison.broken)}")
    for caveat in comparison.caveats:
        console.print(f"caveat: {caveat}")
    console.print(
        f"{comparison.outcome.value}: two stored runs, no paired gate; run"
        " `isobatch gate --base ... --head ...` on one machine to decide"
    )
