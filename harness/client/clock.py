"""The one clock of the client: monotonic, in seconds."""

from __future__ import annotations

import time

now = time.monotonic
"""Seconds on the monotonic clock, which all processes of one machine share."""


class RunClock:
    """Seconds since the start of a run."""

    __slots__ = ("start",)

    def __init__(self) -> None:
        self.start = now()

    def seconds(self) -> float:
        """The time now, counted from the start."""
        return now() - self.start
