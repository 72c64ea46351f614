"""Writes a run of the suite to its folder while it goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from harness.checks.registry import Check
from harness.checks.session import Session
from harness.checks.suite import Progress
from harness.cli.verdict_table import VerdictTable
from harness.results.run_folder import RunFolder
from harness.results.server_identity import discover_server
from harness.verdict import CheckResult


class RunRecord:
    """The run folder, made when the server turns out to be one that can be judged.

    ``stack`` closes it: how the block ends is how the run ended. ``folder`` is there once the
    session is open. ``facts`` are what is known of the server from elsewhere;
    ``api_key`` is only sent, never written.
    """

    folder: RunFolder

    def __init__(
        self,
        stack: ExitStack,
        out: Path,
        command: Sequence[str],
        url: str,
        table: VerdictTable,
        facts: Mapping[str, Any] | None = None,
        api_key: str | None = None,
    ) -> None:
        self._stack = stack
        self._out = out
        self._command = command
        self._url = url
        self._table = table
        self._facts = facts or {}
        self._api_key = api_key

    def progress(self) -> Progress:
        """What the suite tells, written and shown."""
        return Progress(self._opened, self._started, self._finished)

    def _opened(self, session: Session) -> None:
        folder = RunFolder.create(self._out, kind="check", command=self._command)
        self._stack.callback(draw_page, folder.path)  # after the folder is closed, however it ends
        self.folder = self._stack.enter_context(folder)
        model = getattr(session.target, "model", None)
        self.folder.set_server(**discover_server(self._url, api_key=self._api_key, model=model))
        self.folder.set_server(
            url=self._url, model=model, sources={"url": "given", "model": "discovered"}
        )
        if self._facts:
            self.folder.set_server(**self._facts)
        oracle = session.oracle
        self.folder.set_oracle(oracle.name, oracle.description)
        self._table.opened(session)

    def _started(self, check: Check) -> None:
        self._table.started(check)

    def _finished(self, result: CheckResult) -> None:
        self.folder.add_verdict(result)
        self._table.finished(result)


def draw_page(folder: Path) -> None:
    """Write the folder's report.html. A disk without room for it has been told of by then."""
    from harness.report.page import write_run_page

    with suppress(OSError):
        write_run_page(folder)
