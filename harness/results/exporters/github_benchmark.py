"""Metrics for benchmark-action/github-action-benchmark.

The action reads one list a file, all smaller-is-better or all bigger-is-better, so there is an
exporter for each direction. Undefined numbers are left out: the action knows no null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from harness.results.document import MetricRow, ResultDocument

_BIGGER: Final = ("throughput.", "goodput", "ragged_efficiency")
_SMALLER: Final = ("prefill_interference", "requests.failed")


def to_smaller_is_better(document: ResultDocument) -> str:
    """Times and failures, for the action's ``customSmallerIsBetter``."""
    return _entries(row for row in document["metrics"] if _smaller(row))


def to_bigger_is_better(document: ResultDocument) -> str:
    """Rates, for the action's ``customBiggerIsBetter``."""
    return _entries(row for row in document["metrics"] if row["id"].startswith(_BIGGER))


def _smaller(row: MetricRow) -> bool:
    return row["unit"] == "s" or row["id"] in _SMALLER


def _entries(rows: Iterable[MetricRow]) -> str:
    entries = [_entry(row) for row in rows if row["value"] is not None]
    return json.dumps(entries, indent=1) + "\n"


def _entry(row: MetricRow) -> dict[str, Any]:
    window = f" ({row['window']})" if row["window"] else ""
    entry: dict[str, Any] = {
        "name": f"{row['id']} {row['statistic']}{window}",
        "unit": row["unit"],
        "value": row["value"],
        "extra": f"n={row['count']}",
    }
    if row["low"] is not None and row["high"] is not None:
        entry["range"] = f"{row['low']:.6g} to {row['high']:.6g}"
    return entry
