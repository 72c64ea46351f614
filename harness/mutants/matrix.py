"""The kill matrix: faults by checks, as a JSON document and as a page with a heat map."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from typing import Any, Final

from harness.checks.registry import Chapter, Check
from harness.mutants.campaign import Attempt, MutantRow
from harness.verdict import Verdict

FORMAT: Final = "isobatch.mutants/1"


def matrix_document(
    rows: Sequence[MutantRow],
    checks: Sequence[Check],
    healthy: Sequence[Attempt],
    **facts: Any,
) -> dict[str, Any]:
    """All that was found. ``facts`` (budget, seed, commit) are added as they are."""
    killed = [row for row in rows if row.killed]
    detected = [r for row in rows if (r := row.requests_to_detection) is not None]
    alarms = [r.check_id for a in healthy for r in a.results if r.verdict is Verdict.FAIL]
    return {
        "format": FORMAT,
        **facts,
        "checks": [c.id for c in checks],
        "faults": len(rows),
        "killed": len(killed),
        "killed_by_own_chapter": sum(row.killed_by_its_chapter for row in rows),
        "survivors": [row.name for row in rows if not row.killed and not row.errors],
        "not_judged": [row.name for row in rows if row.errors and not row.killed],
        "never_executed": [row.name for row in rows if not _executed(row)],
        "median_requests_to_detection": statistics.median(detected) if detected else None,
        "healthy_runs": len(healthy),
        "false_alarms": alarms,
        "healthy_requests": sum(a.requests for a in healthy),
        "rows": [_row(row) for row in rows],
    }


def _executed(row: MutantRow) -> bool:
    return row.killed or any(a.executions for a in row.attempts)


def _row(row: MutantRow) -> dict[str, Any]:
    return {
        "fault": row.name,
        "title": row.title,
        "group": row.group,
        "imitates": list(row.imitates),
        "killed": row.killed,
        "killed_by_own_chapter": row.killed_by_its_chapter,
        "requests_to_detection": row.requests_to_detection,
        "attempts": [_attempt(a) for a in row.attempts],
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    document = asdict(attempt)
    document["results"] = {r.check_id: r.verdict.value for r in attempt.results}
    document["details"] = {r.check_id: r.reason for r in attempt.killers}
    return document


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
