"""What a run of the suite shows while it goes on and at its end, on a terminal and in a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from harness.checks import suite
from harness.checks.registry import Check
from harness.checks.session import Session
from harness.console import plain_console
from harness.verdict import CheckResult, Failure, Verdict

_COLOURS: Final = {
    Verdict.PASS: "green",
    Verdict.FAIL: "bold red",
    Verdict.TIE_FLIPS: "yellow",
    Verdict.UNSUPPORTED: "dim",
    Verdict.INCONCLUSIVE: "magenta",
    Verdict.ERROR: "bold red",
}


class VerdictTable:
    """A progress bar and a line a check on a terminal; plain lines elsewhere."""

    def __init__(self, checks: Sequence[Check], console: Console | None = None) -> None:
        self.console = console or plain_console()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._task = self._bar.add_task("opening", total=len(checks))

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def opened(self, session: Session) -> None:
        """Say what is judged, by what, and with which seed."""
        model = getattr(session.target, "model", None)
        self.console.print(f"server   {session.target.name}, model {model}")
        self.console.print(f"oracle   {session.oracle.name}: {session.oracle.description}")
        self.console.print(f"budget   {session.budget.name}, seed {session.seed}")
        limit, page = session.capabilities.context_limit, session.capabilities.page_size
        self.console.print(
            f"found    {len(session.capabilities.has)} capabilities, "
            f"{len(session.capabilities.why_not)} missing; context limit {limit or 'unknown'}, "
            f"page size {page or 'unknown'}"
        )

    def started(self, check: Check) -> None:
        """Name the check that runs now."""
        self._bar.update(self._task, description=check.id)

    def finished(self, result: CheckResult) -> None:
        """One line for the check."""
        self._bar.advance(self._task)
        line = Text(f"{result.check_id:<7}")
        line.append(f"{result.verdict.value:<13}", _COLOURS[result.verdict])
        line.append(result.sentence)
        if result.verdict is not Verdict.PASS:
            line.append(f" [{result.reason}]", "dim")
        self.console.print(line, soft_wrap=True)

    def summary(self, report: suite.SuiteReport, folder: Path) -> None:
        """The failures in full, the counts by chapter, and where the run is."""
        for result in report.results:
            for index, failure in enumerate(result.failures):
                file = folder / "failures" / f"{result.check_id}-{index + 1}.json"
                self.console.print(failure_text(result, failure, file), soft_wrap=True)
        self.console.print(chapter_table(report.results))
        verdicts = Counter(result.verdict for result in report.results)
        counts = ", ".join(f"{verdicts[v]} {v.value}" for v in Verdict if verdicts[v])
        self.console.print(
            f"{counts}; {report.requests} requests in {report.duration_s:.0f} s; seed {report.seed}"
        )
        if report.judged_nothing:
            self.console.print(
                "WARNING: nothing could be judged: every check was unsupported or inconclusive; "
                "the reasons are beside them",
                style="bold yellow",
                soft_wrap=True,
            )
        self.console.print(f"written to {folder}", soft_wrap=True)
        if (folder / "report.html").is_file():
            self.console.print(f"report   {folder / 'report.html'}", soft_wrap=True)


def failure_text(result: CheckResult, failure: Failure, file: Path) -> str:
    """A failure in a few lines that say what to do with it."""
    lines = [
        "",
        f"{result.check_id} FAILED: {failure.sentence}",
        f"  {failure.detail}",
    ]
    if failure.expected is not None:
        lines.append(f"  expected  {_shown(failure.expected, failure.first_difference)}")
        lines.append(f"  actual    {_shown(failure.actual, failure.first_difference)}")
    if failure.guess:
        lines.append(f"  looks as if: {failure.guess}")
    requests = len(failure.workload.requests) if failure.workload else 0
    lines.append(f"  failed {failure.seen} of {failure.tried} times; smallest: {requests} requests")
    lines.append(f"  replay: isobatch replay {file}")
    return "\n".join(lines)


def _shown(value: object, first_difference: int | None) -> str:
    """A value, cut to what surrounds the first difference."""
    if isinstance(value, list | str) and len(value) > 24:
        start = max(0, (first_difference or 0) - 8)
        part = value[start : start + 20]
        return f"{'... ' if start else ''}{part!r} ... (from {start})"
    return repr(value)


def chapter_table(results: Sequence[CheckResult]) -> Table:
    """Chapters by verdicts."""
    counts: dict[str, Counter[Verdict]] = {}
    for result in results:
        counts.setdefault(result.check_id.split("-")[0], Counter())[result.verdict] += 1
    shown = [v for v in Verdict if any(c[v] for c in counts.values())]
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("chapter")
    for verdict in shown:
        table.add_column(verdict.value, justify="right", style=_COLOURS[verdict])
    for chapter, counter in counts.items():
        table.add_row(chapter, *[str(counter[v] or "") for v in shown])
    return table
