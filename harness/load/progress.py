"""Live progress of a run: how many ended, the TTFT of late, failures by the way."""

from __future__ import annotations

import time
from collections import deque
from statistics import median
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from harness.console import plain_console
from harness.metrics.samples import one_value
from harness.transcript import RequestTranscript

_RECENT = 64
_EVERY_S = 0.5


class Progress:
    """A bar on the terminal's stderr; nothing where there is no terminal or ``quiet``.

    Drawing costs the loop time, so it is drawn twice a second and only when a request ends.
    """

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        console = plain_console(stderr=True)
        self._show = console.is_terminal and not quiet
        self._bar = RichProgress(
            TextColumn("requests"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self._task = self._bar.add_task("", total=total, note="")
        self._count = 0
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._drawn_s = 0.0

    def __enter__(self) -> Self:
        if self._show:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._show:
            self._bar.stop()

    def ended(self, request: RequestTranscript) -> None:
        """A request ended."""
        self._count += 1
        if (ttft_s := one_value("ttft.response", request)) is not None:
            self._recent.append(ttft_s)
        t_s = time.monotonic()
        if not self._show or t_s - self._drawn_s < _EVERY_S:
            return
        self._drawn_s = t_s
        note = f"TTFT p50 {median(self._recent) * 1000:.1f} ms" if self._recent else ""
        self._bar.update(self._task, completed=self._count, note=note)
        self._bar.refresh()
