"""The page that documents the checks, made from the register so that it cannot drift."""

from __future__ import annotations

from collections.abc import Sequence

from harness.checks.catalogue import root_causes
from harness.checks.registry import WITHDRAWN, Chapter, Check


def checks_page(checks: Sequence[Check]) -> str:
    """All checks as Markdown, chapter by chapter."""
    lines = [
        "# Checks",
        "",
        f"{len(checks)} checks. This page is made by `isobatch list checks --markdown`.",
        "",
        "On every pull request: [a GitHub Actions workflow](github_actions_example.yml) starts a "
        "server, runs the budget `quick`, writes the step summary and uploads the report. With "
        "pytest: `pytest --pyargs harness.checks --isobatch-url URL -k ISO`.",
        "",
    ]
    for chapter in Chapter:
        mine = [c for c in checks if c.chapter is chapter]
        if not mine:
            continue
        lines += [f"## {chapter.value}: {chapter.topic}", ""]
        lines += [
            "| id | must hold | needs | evidence | answers to |",
            "| --- | --- | --- | --- | --- |",
        ]
        lines += [_row(c) for c in mine]
        lines.append("")
    lines += [
        "## Root causes",
        "",
        "Public bugs by root cause, and the checks that answer to them.",
        "",
    ]
    lines += ["| root cause | bugs | checks |", "| --- | ---: | --- |"]
    for cause in root_causes():
        answering = ", ".join(c.id for c in cause.answered_by(checks))
        lines.append(f"| {cause.title} | {len(cause.bugs)} | {answering} |")
    lines.append("")
    if WITHDRAWN:
        lines += ["## Withdrawn", ""]
        lines += [f"- {check_id}: {reason}" for check_id, reason in WITHDRAWN.items()]
        lines.append("")
    return "\n".join(lines)


def _row(check: Check) -> str:
    needs = "; ".join(need.value for need in check.needs)
    evidence = "; ".join(f"{name} >= {least:g}" for name, least in check.shows.items())
    cells = (check.id, check.sentence, needs, evidence, ", ".join(check.answers))
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
