"""The benchmark report of llm-d-benchmark, version 0.2, as JSON.

Context: the report wants a mean for every statistic, knows no confidence bounds and no definition
ids. So a metric without a mean is left out, bounds are dropped, and the definitions that were used
are named in the description. It has no place for verdicts; those go to JUnit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.results.document import MetricRow, ResultDocument

_VERSION: Final = "0.2"
_STATISTICS: Final = {
    "mean": "mean",
    "min": "min",
    "p50": "p50",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "p99.9": "p99p9",
    "max": "max",
}
_LATENCIES: Final = {
    "ttft.response": ("time_to_first_token", "s"),
    "tpot": ("time_per_output_token", "s/token"),
    "itl": ("inter_token_latency", "s/token"),
    "e2e.response": ("request_latency", "s"),
}
_RATES: Final = {
    "throughput.output": ("output_token_rate", "tokens/s"),
    "throughput.total": ("total_token_rate", "tokens/s"),
    "throughput.requests": ("request_rate", "queries/s"),
}


def to_llmd_report(document: ResultDocument) -> str:
    """The report: the steady window where the run has one, else the whole run."""
    rows = _of_best_window(document["metrics"])
    counts = {
        row["id"]: int(row["value"])
        for row in document["metrics"]
        if row["id"].startswith("requests.") and row["value"] is not None
    }
    aggregate: dict[str, Any] = {
        "latency": _statistics(rows, _LATENCIES),
        "throughput": _statistics(rows, _RATES),
    }
    if "requests.attempted" in counts:
        aggregate["requests"] = {
            "total": counts["requests.attempted"],
            "failures": counts.get("requests.failed", 0),
            "incomplete": counts.get("requests.cancelled", 0),
        }
    report = {
        "version": _VERSION,
        "run": _run(document),
        "results": {"request_performance": {"aggregate": aggregate}},
    }
    return json.dumps(report, indent=1) + "\n"


def _run(document: ResultDocument) -> dict[str, Any]:
    server = document["server"]
    time = {"start": document["started_at"]}
    if document["ended_at"] is not None and document["duration_s"] is not None:
        time |= {"end": document["ended_at"], "duration": f"PT{document['duration_s']:.3f}S"}
    named = " ".join(v for v in (server["name"], server["version"], server["model"]) if v)
    used = ", ".join([*_LATENCIES, *_RATES])
    return {
        "uid": document["run_id"],
        "time": time,
        "description": (
            f"{document['tool']['name']} {document['tool']['version']} on {named or 'a server'};"
            f" definitions: {used}"
        ),
        "keywords": ["isobatch", document["kind"]],
    }


def _of_best_window(rows: Sequence[MetricRow]) -> list[MetricRow]:
    window = "steady" if any(row["window"] == "steady" for row in rows) else "whole"
    return [row for row in rows if row["window"] == window]


def _statistics(
    rows: Sequence[MetricRow], names: Mapping[str, tuple[str, str]]
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for metric_id, (field, units) in names.items():
        values = {
            _STATISTICS[row["statistic"]]: row["value"]
            for row in rows
            if row["id"] == metric_id
            and row["value"] is not None
            and row["statistic"] in _STATISTICS
        }
        rate = next(
            (r["value"] for r in rows if r["id"] == metric_id and r["statistic"] == "value"), None
        )
        if rate is not None:
            values["mean"] = rate
        if "mean" in values:
            found[field] = {"units": units, **values}
    return found
