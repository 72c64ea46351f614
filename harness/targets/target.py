"""The interface between the harness and whatever serves."""

from __future__ import annotations

from typing import Protocol

from harness.transcript import Transcript
from workloads.workload import Workload


class TargetUnusable(Exception):
    """The server cannot be driven at all; the message is one sentence that says what to do."""


class Target(Protocol):
    """Something that serves completions."""

    @property
    def name(self) -> str:
        """How reports call it: a URL, or ``in-process``."""

    async def run(self, workload: Workload) -> Transcript:
        """Send every request when it is due and return what came back.

        Never raises for what a server does wrong: that is in the transcript, typed.
        """

    async def metrics(self) -> dict[str, float]:
        """The server's gauges and counters under their own names; empty where it shows none."""

    async def close(self) -> None:
        """Free connections."""
