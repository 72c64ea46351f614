"""The kill matrix: faults by checks, as a JSON document and as a page with a heat map."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final

from harness.checks.registry import Chapter, Check
from harness.verdict import Verdict

FORMAT: Final = "isobatch.mutants/2"


def matrix_document(
    rows: Sequence[dict[str, Any]],
    checks: Sequence[Check],
    healthy: Sequence[dict[str, Any]],
    not_run: Sequence[str] = (),
    **facts: Any,
) -> dict[str, Any]:
    """All that was found. ``rows`` and ``healthy`` are documents of `attempt`'s classes.

    ``not_run`` are the faults without a row yet; ``facts`` (the tool's version) are added as they
    are.
    """
    killed = [row for row in rows if row["killed"]]
    detected = [r for row in rows if (r := row["requests_to_detection"]) is not None]
    return {
        "format": FORMAT,
        **facts,
        "checks": [c.id for c in checks],
        "faults": len(rows),
        "killed": len(killed),
        "killed_by_own_chapter": sum(row["killed_by_own_chapter"] for row in rows),
        "survivors": [r["fault"] for r in rows if not r["killed"] and not r["errors"]],
        "not_judged": [r["fault"] for r in rows if r["errors"] and not r["killed"]],
        "not_run": list(not_run),
        "never_executed": [r["fault"] for r in rows if not r["executed"]],
        "median_requests_to_detection": statistics.median(detected) if detected else None,
        "healthy_runs": dict(sorted(Counter(run["budget"] for run in healthy).items())),
        "healthy_workloads": sum(run["workloads"] for run in healthy),
        "healthy_requests": sum(run["requests"] for run in healthy),
        "false_alarms": [check_id for run in healthy for check_id in run["failures"]],
        "healthy": list(healthy),
        "rows": list(rows),
    }


def matrix_page(document: dict[str, Any]) -> str:
    """The document as one HTML page that needs nothing else. Everything in it is escaped."""
    from jinja2 import Environment

    template = resources.files(__package__).joinpath("matrix.html.j2").read_text("utf-8")
    chapters = [
        (chapter.value, [c for c in document["checks"] if c.startswith(f"{chapter.value}-")])
        for chapter in Chapter
    ]
    rows = [(row, _cells(row)) for row in document["rows"]]
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(
        document=document, chapters=[c for c in chapters if c[1]], rows=rows
    )


def _cells(row: dict[str, Any]) -> dict[str, str]:
    """The worst verdict of each check over all attempts at the fault."""
    cells: dict[str, str] = {}
    for attempt in row["attempts"]:
        for check_id, verdict in attempt["results"].items():
            if cells.get(check_id) != Verdict.FAIL.value:
                cells[check_id] = verdict
    return cells
