"""The terminal view of metric rows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.results.document import MetricRow

_LATENCIES = (
    "ttft.response",
    "ttft.service",
    "tpot",
    "itl",
    "chunk_gap",
    "e2e.response",
    "e2e.service",
    "send_lag",
)
_STATISTICS = ("mean", "p50", "p90", "p99", "max")
_RATES = ("throughput.output", "throughput.total", "throughput.requests")


def print_metrics(console: Console, rows: Sequence[MetricRow], title: str) -> None:
    """Latencies in milliseconds, then rates, counts and ledgers; a dash where undefined."""
    window = "steady" if any(r["window"] == "steady" for r in rows) else "whole"
    found = {(r["id"], r["statistic"]): r for r in rows if r["window"] == window}
    table = Table(title=Text(title), title_justify="left")
    table.add_column(f"{window} window, ms")
    for statistic in _STATISTICS:
        table.add_column(statistic, justify="right")
    table.add_column("n", justify="right")
    for metric in _LATENCIES:
        cells = [found.get((metric, s)) for s in _STATISTICS]
        count = max((c["count"] for c in cells if c is not None), default=0)
        if count:
            table.add_row(metric, *(_milliseconds(c) for c in cells), str(count))
    console.print(table)
    for metric in _RATES:
        row = found.get((metric, "value"))
        if row is not None and row["value"] is not None:
            console.print(
                f"{metric:26} {row['value']:.1f} {row['unit']}", highlight=False, markup=False
            )
    for row in rows:
        if row["window"] is None and row["value"] is not None:
            note = f"  ({row['note']})" if row.get("note") else ""
            console.print(f"{row['id']:26} {row['value']:g}{note}", highlight=False, markup=False)


def _milliseconds(row: MetricRow | None) -> str:
    if row is None or row["value"] is None:
        return "-"
    return f"{row['value'] * 1000:.2f}"
