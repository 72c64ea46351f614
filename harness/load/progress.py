"""Live progress of a run: how many ended, and the TTFT, token gap and throughput of late."""

from __future__ import annotations

import sys
import time
from collections import deque
from statistics import mean, median
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from harness.console import plain_console
from harness.metrics.ledger import TokenLedger
from harness.metrics.samples import one_value
from harness.transcript import RequestTranscript

_RECENT = 64
_EVERY_S = 0.5
_LINE_EVERY_S = 10.0


class Recent:
    """Medians of what ended lately. Gaps and tokens come from the answers that are parsed already:
    one about every half second, the rest after the run, so tokens/s is an estimate."""

    def __init__(self) -> None:
        self._ends_s: deque[float] = deque(maxlen=_RECENT)
        self._ttfts_s: deque[float] = deque(maxlen=_RECENT)
        self._gaps_s: deque[float] = deque(maxlen=_RECENT)
        self._tokens: deque[int] = deque(maxlen=_RECENT)

    def add(self, request: RequestTranscript, t_s: float) -> None:
        """A request ended at ``t_s`` on the clock."""
        self._ends_s.append(t_s)
        if (ttft_s := one_value("ttft.response", request)) is not None:
            self._ttfts_s.append(ttft_s)
        if (gap_s := one_value("tpot", request)) is not None:
            self._gaps_s.append(gap_s)
            self._tokens.append(TokenLedger.of(request).output_tokens or 0)

    def note(self) -> str:
        """One short line; what is not known yet is left out."""
        parts = []
        if self._ttfts_s:
            parts.append(f"TTFT p50 {median(self._ttfts_s) * 1000:.1f} ms")
        if self._gaps_s:
            parts.append(f"TPOT p50 {median(self._gaps_s) * 1000:.2f} ms")
        seconds = self._ends_s[-1] - self._ends_s[0] if self._ends_s else 0.0
        if self._tokens and seconds > 0:
            rate = (len(self._ends_s) - 1) / seconds * mean(self._tokens)
            parts.append(f"about {rate:,.0f} tokens/s")
        return ", ".join(parts)


class Progress:
    """A bar on the terminal's stderr, a plain line every ten seconds elsewhere (CI), nothing when
    ``quiet``.

    Drawing costs the loop time, so it is drawn twice a second and only when a request ends.
    """

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        console = plain_console(stderr=True)
        self._bar: RichProgress | None = None
        self._quiet = quiet
        if console.is_terminal and not quiet:
            self._bar = _bar(console)
            self._task = self._bar.add_task("", total=total, note="")
        self._total = total
        self._count = 0
        self._recent = Recent()
        self._drawn_s = time.monotonic()

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def ended(self, request: RequestTranscript) -> None:
        """A request ended."""
        self._count += 1
        t_s = time.monotonic()
        self._recent.add(request, t_s)
        every_s = _LINE_EVERY_S if self._bar is None else _EVERY_S
        if self._quiet or t_s - self._drawn_s < every_s:
            return
        self._drawn_s = t_s
        if self._bar is None:
            print(f"{self._count}/{self._total} {self._recent.note()}", file=sys.stderr, flush=True)
            return
        self._bar.update(self._task, completed=self._count, note=self._recent.note())
        self._bar.refresh()


def _bar(console: Console) -> RichProgress:
    return RichProgress(
        TextColumn("requests"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        auto_refresh=False,
        transient=True,
    )
