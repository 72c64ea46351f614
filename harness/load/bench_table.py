"""The terminal view of a measured run."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from harness.load.bench_run import BenchOutcome
from harness.results.document import MetricRow

_LATENCIES = ("ttft.response", "ttft.service", "tpot", "chunk_gap", "e2e.response", "send_lag")
_STATISTICS = ("mean", "p50", "p90", "p99", "max")


def print_outcome(outcome: BenchOutcome) -> None:
    """Latencies in milliseconds, throughput, counts, and whether the client kept up."""
    console = Console()
    window = "steady" if any(r["window"] == "steady" for r in outcome.rows) else "whole"
    rows = {(r["id"], r["statistic"]): r for r in outcome.rows if r["window"] == window}
    table = Table(
        title=f"{outcome.model}, {outcome.recipe.name}: {outcome.recipe.title}",
        title_justify="left",
    )
    table.add_column(f"{window} window, ms")
    for statistic in _STATISTICS:
        table.add_column(statistic, justify="right")
    table.add_column("n", justify="right")
    for metric in _LATENCIES:
        found = [rows.get((metric, s)) for s in _STATISTICS]
        if any(row is not None and row["count"] for row in found):
            count = next(row["count"] for row in found if row is not None)
            table.add_row(metric, *(_ms(row) for row in found), str(count))
    console.print(table)
    for metric in ("throughput.output", "throughput.total", "throughput.requests"):
        row = rows.get((metric, "value"))
        if row is not None and row["value"] is not None:
            console.print(f"{metric:20} {row['value']:10.1f} {row['unit']}")
    for row in outcome.rows:
        if row["id"].startswith(("requests.", "tokens.", "goodput")) and row["value"] is not None:
            note = f"  ({row['note']})" if row.get("note") else ""
            console.print(f"{row['id']:26} {row['value']:g}{note}", highlight=False)
    _print_health(console, outcome)
    console.print(f"run folder: {outcome.folder}", highlight=False, soft_wrap=True)


def _print_health(console: Console, outcome: BenchOutcome) -> None:
    health = outcome.health
    if health.valid:
        lag = health.loop_lag_p99_s
        late = f", loop lag p99 {lag * 1000:.1f} ms" if lag is not None else ""
        console.print(f"client: valid, {health.cpu_s:.2f} s of CPU{late}", highlight=False)
        return
    for reason in health.reasons:
        console.print(f"[bold red]INVALID[/]: {reason}")


def _ms(row: MetricRow | None) -> str:
    if row is None or row["value"] is None:
        return "-"
    return f"{row['value'] * 1000:.2f}"
