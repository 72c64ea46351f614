"""TTFT and gaps as the server sees them: from arrival to the end of a step, and between steps."""

from __future__ import annotations

import time
from typing import Protocol


class Timings(Protocol):
    """Where measured times go; the Prometheus histograms, in the server."""

    def time_to_first_token(self, seconds: float) -> None:
        """One choice's first token after so long."""

    def inter_token(self, seconds: float) -> None:
        """One gap between tokens of a choice."""


class Latency:
    """Times the tokens of one choice, from the moment it is created."""

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self._last_s = time.monotonic()
        self._started = False

    def token(self, stepped_s: float) -> None:
        """A token came out of the step that ended at ``stepped_s`` on the monotonic clock."""
        gap_s = max(0.0, stepped_s - self._last_s)
        if self._started:
            self._timings.inter_token(gap_s)
        else:
            self._timings.time_to_first_token(gap_s)
        self._started = True
        self._last_s = stepped_s
