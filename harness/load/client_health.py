"""Watches the client while it measures: a late or starved client must not be read as a slow server.

Four things are watched: how late the event loop runs (a timer that says when it wanted to wake),
how late requests were sent, the share of one CPU that this process used, and pauses of the garbage
collector. Past a limit the run is invalid, and the reason says what to change.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from harness.client.clock import now
from harness.results.document import ClientHealth as ClientHealthDocument
from harness.transcript import RequestTranscript

PROBE_S: Final = 0.05
"""How often the loop's lag is sampled."""


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """What a valid run may show. Seconds, and a share of one CPU."""

    loop_lag_p99_s: float = 0.025
    send_lag_p99_s: float = 0.05
    cpu_share: float = 0.95
    gc_pause_s: float = 0.05


@dataclass(slots=True)
class ClientHealth:
    """What was seen; `reasons` are empty in a valid run. None where there was nothing to see.

    ``cpu_s`` is the process time while requests were in flight, ``cpu_total_s`` with the parsing
    that was put off until after. ``clock_error_s`` bounds how far apart workers on different
    machines began. ``calibration`` is the client's own error, measured beside the run.
    """

    duration_s: float = 0.0
    cpu_s: float = 0.0
    cpu_total_s: float = 0.0
    cpu_share: float | None = None
    loop_lag_p50_s: float | None = None
    loop_lag_p99_s: float | None = None
    loop_lag_max_s: float | None = None
    send_lag_p99_s: float | None = None
    gc_pauses: int = 0
    gc_pause_max_s: float = 0.0
    connections_opened: int | None = None
    connections_reused: int | None = None
    connect_p50_s: float | None = None
    retries: int = 0
    workers: int = 1
    clock_error_s: float | None = None
    calibration: dict[str, float] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        """Whether the run's times can be believed."""
        return not self.reasons

    def to_json(self) -> ClientHealthDocument:
        """The part of the result document."""
        numbers: dict[str, Any] = asdict(self)
        del numbers["reasons"]
        numbers.update(numbers.pop("calibration"))
        return {"valid": self.valid, "reasons": self.reasons, "numbers": numbers}


def merged(parts: Sequence[ClientHealth]) -> ClientHealth:
    """The health of several workers: sums of costs and counts, the worst of everything else."""
    whole = ClientHealth(workers=len(parts))
    for name in ("cpu_s", "cpu_total_s", "gc_pauses", "retries"):
        setattr(whole, name, sum(getattr(part, name) for part in parts))
    for name in ("connections_opened", "connections_reused"):
        setattr(whole, name, sum(getattr(part, name) or 0 for part in parts))
    for name in (
        "duration_s", "cpu_share", "loop_lag_p50_s", "loop_lag_p99_s", "loop_lag_max_s",
        "send_lag_p99_s", "gc_pause_max_s", "connect_p50_s", "clock_error_s",
    ):  # fmt: skip
        known = [v for part in parts if (v := getattr(part, name)) is not None]
        setattr(whole, name, max(known, default=None))
    for number, part in enumerate(parts):
        whole.reasons += [f"worker {number}: {reason}" for reason in part.reasons]
    return whole


class HealthWatch:
    """Watches from the ``async with`` to its end. Then `health` has what was seen."""

    def __init__(self, limits: HealthLimits | None = None) -> None:
        self._limits = limits or HealthLimits()
        self._lags: list[float] = []
        self._gc_started_s = 0.0
        self._stopped = False
        self.health = ClientHealth()

    async def __aenter__(self) -> Self:
        # What exists now will not be looked at again: collections during the run stay short.
        gc.collect()
        gc.freeze()
        # Almost nothing that a run makes is a cycle, so collecting often would only cost time.
        self._gc_threshold = gc.get_threshold()
        gc.set_threshold(200_000, 20, 100)
        gc.callbacks.append(self._on_gc)
        self._started_s, self._cpu_started_s = now(), time.process_time()
        self._task = asyncio.create_task(self._probe())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self.health.cpu_total_s = time.process_time() - self._cpu_started_s

    def stop(self) -> None:
        """The last answer is in: what follows disturbs no measurement. Called again, no effect."""
        if self._stopped:
            return
        self._stopped = True
        health = self.health
        health.duration_s = now() - self._started_s
        health.cpu_s = time.process_time() - self._cpu_started_s
        health.cpu_share = health.cpu_s / health.duration_s if health.duration_s > 0 else None
        self._task.cancel()
        gc.callbacks.remove(self._on_gc)
        gc.set_threshold(*self._gc_threshold)
        gc.unfreeze()
        lags = sorted(self._lags)
        health.loop_lag_p50_s = _rank(lags, 0.5)
        health.loop_lag_p99_s = _rank(lags, 0.99)
        health.loop_lag_max_s = lags[-1] if lags else None

    def judge(self, requests: Iterable[RequestTranscript]) -> ClientHealth:
        """Add what the transcript shows, and decide. Call it once, after the run."""
        health, limits = self.health, self._limits
        everything = list(requests)
        sent = sorted(r.t_sent_s - r.t_due_s for r in everything if r.t_sent_s is not None)
        connects = sorted(r.t_connect_s for r in everything if r.t_connect_s is not None)
        health.send_lag_p99_s = _rank(sent, 0.99)
        health.connect_p50_s = _rank(connects, 0.5)
        health.retries = sum(r.retries for r in everything)
        for name, limit, advice in (
            ("loop_lag_p99_s", limits.loop_lag_p99_s, "use more --workers or free the machine"),
            ("send_lag_p99_s", limits.send_lag_p99_s, "use more --workers or a lower rate"),
            ("cpu_share", limits.cpu_share, "use more --workers"),
            ("gc_pause_max_s", limits.gc_pause_s, "send fewer requests in one run"),
        ):
            seen = getattr(health, name)
            if seen is not None and seen > limit:
                health.reasons.append(f"{name} is {seen:.3g}, above {limit:g}: {advice}")
        return health

    async def _probe(self) -> None:
        while True:
            wanted_s = now() + PROBE_S
            await asyncio.sleep(PROBE_S)
            self._lags.append(max(0.0, now() - wanted_s))

    def _on_gc(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._gc_started_s = now()
        else:
            self.health.gc_pauses += 1
            pause_s = now() - self._gc_started_s
            self.health.gc_pause_max_s = max(self.health.gc_pause_max_s, pause_s)


def _rank(ordered: list[float], q: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else None
