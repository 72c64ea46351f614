"""Metrics as CSV: one line a number, undefined left empty."""

from __future__ import annotations

import csv
import io
from typing import Final

from harness.results.document import ResultDocument

COLUMNS: Final = (
    "run_id", "started_at", "server", "server_version", "model", "id", "statistic", "unit",
    "value", "low", "high", "confidence", "count", "window", "workload_sha256",
)  # fmt: skip
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


def to_csv(document: ResultDocument) -> str:
    """The metric rows of the run, with what identifies it in every line."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    shared = {
        "run_id": document["run_id"],
        "started_at": document["started_at"],
        "server": _harmless(document["server"]["name"]),
        "server_version": _harmless(document["server"]["version"]),
        "model": _harmless(document["server"]["model"]),
    }
    for row in document["metrics"]:
        names = {"id": _harmless(row["id"]), "statistic": _harmless(row["statistic"])}
        writer.writerow({**row, **shared, **names, "unit": _harmless(row["unit"])})
    return text.getvalue()


def _harmless(name: str | None) -> str | None:
    """A name that a spreadsheet will not run as a formula."""
    if name is not None and name.startswith(_FORMULA_STARTS):
        return f"'{name}"
    return name
