"""Writes the site: one page of standings and a page a run, openable from disk without a network.

Everything in a result is foreign: it may come from a pull request. So pages are rendered anew from
the documents (a run's own report.html is not copied), every value is escaped by the template, the
one script is ours and allowed by its digest, and only files that the document names and that lie
within the run's folder are copied.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections import defaultdict
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from markupsafe import Markup

from harness.leaderboard.pareto_figure import pareto_figure
from harness.leaderboard.standings import VERDICTS, PerformanceRow, Run, Standings
from harness.report.page import environment, render_run
from harness.report.pictures import Picture
from harness.report.theme import inline_svg
from harness.results.atomic import write_atomically
from harness.results.document import ResultInvalid


def write_site(standings: Standings, out: Path) -> list[str]:
    """Write the site into ``out``. Returns what could not be shown, a sentence each.

    Raises OSError when ``out`` cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    complaints = list(standings.refused)
    for run in standings.runs:
        folder = (out / run.page).parent
        folder.mkdir(parents=True, exist_ok=True)
        try:
            page = render_run(run.folder)
        except (ResultInvalid, ValueError, KeyError, TypeError, OSError) as error:
            complaints.append(f"{run.document['run_id']}: its page cannot be drawn: {error}")
            continue
        write_atomically(out / run.page, page.encode())
        _copy_files(run, folder)
    write_atomically(out / "index.html", render_standings(standings).encode())
    return complaints


def render_standings(standings: Standings) -> str:
    """The page of standings."""
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        environment()
        .get_template("leaderboard.html.j2")
        .render(
            standings=standings,
            verdicts=VERDICTS,
            symbols=SYMBOLS,
            pictures=list(_pictures(standings.performance)),
            script=Markup(script),
            script_digest=digest,
        )
    )


SYMBOLS = {
    "pass": "✓",
    "tie-flips": "≈",
    "fail": "✗",
    "error": "!",
    "inconclusive": "?",
    "unsupported": "∅",
}


def _script() -> str:
    return resources.files("harness.report").joinpath("templates/leaderboard.js").read_text("utf-8")


def _pictures(rows: tuple[PerformanceRow, ...]) -> Iterator[Picture]:
    """One Pareto plot a workload: numbers of different loads are not comparable."""
    by_workload: dict[tuple[str, str], list[PerformanceRow]] = defaultdict(list)
    for row in rows:
        if row.output_rate is not None and row.stream_rate is not None:
            by_workload[(row.workload, row.workload_sha256)].append(row)
    for number, ((name, digest), group) in enumerate(by_workload.items()):
        points = [
            (f"{r.key.name} {r.key.version}".strip(), r.stream_rate, r.output_rate,
             r.standing == "passed")
            for r in group
            if r.stream_rate is not None and r.output_rate is not None
        ]  # fmt: skip
        title = f"Speed for one against speed for all: workload {name} {digest[:8]}"
        yield Picture(
            title,
            inline_svg(pareto_figure(points), f"pareto-{number}", title),
            "Up and to the right is better. The line is the frontier of the servers that passed"
            " their checks; hollow ones did not pass, or were not checked.",
        )


def _copy_files(run: Run, folder: Path) -> None:
    """The evidence that the page links to. What is not there is left out."""
    document = run.document
    named = ["result.json", *(raw["path"] for raw in document["raw"])]
    named += [w["path"] for w in document["workloads"] if w["path"]]
    named += [
        failure["workload_path"]
        for verdict in document["verdicts"]
        for failure in verdict["failures"]
        if failure["workload_path"]
    ]
    inside = run.folder.resolve()
    for name in named:
        source = (run.folder / name).resolve()
        if source.is_file() and source.is_relative_to(inside):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
