"""The report of one run: one HTML file that needs nothing but itself."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.report.metric_table import metric_lines
from harness.report.pictures import pictures
from harness.report.quantity import figures, quantity
from harness.report.run_view import RunView
from harness.report.theme import theme_css
from harness.results.atomic import write_atomically
from harness.results.document import ResultDocument

REPORT_FILE: Final = "report.html"
GOOD: Final = frozenset({"pass", "tie-flips"})
BAD: Final = frozenset({"fail", "error"})


def render_run(folder: Path) -> str:
    """The page of a run folder. Raises ResultInvalid, OSError, ValueError for a broken folder."""
    view = RunView.read(folder)
    statistics, lines = metric_lines(view.document["metrics"])
    return (
        environment()
        .get_template("run.html.j2")
        .render(
            run=view.document,
            headline=headline(view.document),
            tone=tone(view.document),
            tiles=tiles(view.document),
            pictures=pictures(view),
            failed=[v for v in view.document["verdicts"] if v["verdict"] in BAD],
            statistics=statistics,
            metric_lines=lines,
        )
    )


def write_run_page(folder: Path) -> Path:
    """Render the page and write it into the run folder as ``report.html``."""
    page = folder / REPORT_FILE
    write_atomically(page, render_run(folder).encode())
    return page


@cache
def environment() -> Environment:
    """The templates: everything that comes from a result is escaped, nothing may be undefined."""
    loaded = Environment(
        loader=PackageLoader("harness.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    loaded.globals.update(theme_css=theme_css, quantity=quantity, figures=figures)
    return loaded


def headline(document: ResultDocument) -> str:
    """What the run came to, in one sentence."""
    counts = Counter(v["verdict"] for v in document["verdicts"])
    total = sum(counts.values())
    if document["status"] != "complete":
        return f"The run did not end well: {document['status']}"
    if not total:
        return "Measured, not checked"
    good = sum(counts[v] for v in GOOD)
    if good == total:
        return f"All {total} checks passed"
    others = ", ".join(f"{n} {v}" for v, n in counts.items() if v not in GOOD)
    return f"{good} of {total} checks passed; {others}"


def tone(document: ResultDocument) -> str:
    """good, bad or unsure: how the headline is coloured."""
    verdicts = {v["verdict"] for v in document["verdicts"]}
    if verdicts & BAD or document["status"] == "crashed":
        return "bad"
    return "good" if verdicts and verdicts <= GOOD else "unsure"


def tiles(document: ResultDocument) -> list[tuple[str, str]]:
    """The few numbers that a reader looks for first, with their names."""
    wanted = (
        ("ttft.response", "p50", "median TTFT"),
        ("chunk_gap", "p50", "median gap"),
        ("throughput.output", "value", "output"),
    )
    found = []
    for metric_id, statistic, title in wanted:
        rows = [
            m
            for m in document["metrics"]
            if m["id"] == metric_id and m["statistic"] == statistic and m["value"] is not None
        ]
        if rows:
            found.append((title, quantity(rows[0]["value"], rows[0]["unit"])))
    return found
