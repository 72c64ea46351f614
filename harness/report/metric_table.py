"""The metrics of a run as one table: a row a definition, a column a statistic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from harness.report.quantity import quantity
from harness.results.document import MetricRow

STATISTICS: Final = ("value", "mean", "min", "p50", "p90", "p95", "p99", "p99.9", "max")


@dataclass(slots=True)
class MetricLine:
    """One definition over one window of one workload."""

    id: str
    window: str
    count: int
    cells: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def metric_lines(rows: Sequence[MetricRow]) -> tuple[list[str], list[MetricLine]]:
    """The statistics that occur, in a fixed order, and the lines with their cells as text."""
    lines: dict[tuple[str, str, str], MetricLine] = {}
    for row in rows:
        key = (row["id"], row["window"] or "", row["workload_sha256"] or "")
        line = lines.setdefault(key, MetricLine(row["id"], row["window"] or "", row["count"]))
        line.cells[row["statistic"]] = _cell(row)
        line.count = max(line.count, row["count"])
        if note := row.get("note"):
            line.notes.append(note)
    seen = {row["statistic"] for row in rows}
    known = [s for s in STATISTICS if s in seen]
    return known + sorted(seen - set(STATISTICS)), list(lines.values())


def _cell(row: MetricRow) -> str:
    text = quantity(row["value"], row["unit"])
    if row["value"] is None or row["low"] is None or row["high"] is None:
        return text
    return f"{text} [{quantity(row['low'], row['unit'])}, {quantity(row['high'], row['unit'])}]"
