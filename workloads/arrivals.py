"""Arrival models: one absolute schedule, made before the run, the same for any number of workers.

Every model gives the due times of ``count`` requests in seconds from the start, ascending. Rates
are requests per second. Models are frozen and draw only from the stream they are given.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class Arrivals(Protocol):
    """A point process."""

    def times(self, count: int, rng: random.Random) -> list[float]:
        """Due times of ``count`` requests, ascending, in seconds."""


@dataclass(frozen=True, slots=True)
class AtOnce:
    """All at time 0: for a closed loop, whose concurrency decides, or for a burst."""

    def times(self, count: int, rng: random.Random) -> list[float]:
        """Zeros."""
        return [0.0] * count


@dataclass(frozen=True, slots=True)
class Constant:
    """Evenly spaced: request i at i / rate."""

    rate: float

    def times(self, count: int, rng: random.Random) -> list[float]:
        """The grid; no rounding adds up, since each time is computed from 0."""
        return [i / self.rate for i in range(count)]


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent exponential gaps."""

    rate: float

    def times(self, count: int, rng: random.Random) -> list[float]:
        """Arrival times; the first gap counts too."""
        return _accumulate([_exponential(rng) / self.rate for _ in range(count)])


@dataclass(frozen=True, slots=True)
class Gamma:
    """Independent gamma gaps. ``burstiness`` is the shape: 1 is Poisson, below 1 burstier.

    The coefficient of variation of the gaps is ``burstiness ** -0.5``, the mean stays 1 / rate.
    """

    rate: float
    burstiness: float

    def times(self, count: int, rng: random.Random) -> list[float]:
        """Arrival times."""
        scale = 1.0 / (self.rate * self.burstiness)
        return _accumulate([rng.gammavariate(self.burstiness, scale) for _ in range(count)])


@dataclass(frozen=True, slots=True)
class Modulated:
    """A two-state Markov-modulated Poisson process: a quiet and a busy rate, random stays.

    ``mean_stay_s`` are the mean lengths of the quiet and the busy state. Unlike renewal models it
    can have a large index of dispersion over long windows, as real traffic has.
    """

    quiet_rate: float
    busy_rate: float
    mean_quiet_s: float
    mean_busy_s: float

    @property
    def rate(self) -> float:
        """The mean rate."""
        total = self.mean_quiet_s + self.mean_busy_s
        return (self.quiet_rate * self.mean_quiet_s + self.busy_rate * self.mean_busy_s) / total

    def dispersion(self, window_s: float) -> float:
        """The index of dispersion of counts (variance / mean) over windows of this length.

        Fischer and Meier-Hellstern, "The MMPP cookbook" (1993), for the stationary process.
        """
        to_busy, to_quiet = 1.0 / self.mean_quiet_s, 1.0 / self.mean_busy_s
        mixing = to_busy + to_quiet
        spread = to_busy * to_quiet * (self.busy_rate - self.quiet_rate) ** 2
        limit = 2.0 * spread / (mixing**2 * (self.quiet_rate * to_quiet + self.busy_rate * to_busy))
        x = mixing * window_s
        return 1.0 + limit * (1.0 - (1.0 - math.exp(-x)) / x)

    def times(self, count: int, rng: random.Random) -> list[float]:
        """Arrival times, begun in the stationary state."""
        busy = rng.random() < self.mean_busy_s / (self.mean_quiet_s + self.mean_busy_s)
        now = 0.0
        switch = self._stay(busy, rng)
        times: list[float] = []
        while len(times) < count:
            rate = self.busy_rate if busy else self.quiet_rate
            gap = _exponential(rng) / rate if rate > 0 else math.inf
            if now + gap < switch:
                now += gap
                times.append(now)
            else:  # the state changes first; memoryless, so the unfinished gap is forgotten
                now, busy = switch, not busy
                switch = now + self._stay(busy, rng)
        return times

    def _stay(self, busy: bool, rng: random.Random) -> float:
        return _exponential(rng) * (self.mean_busy_s if busy else self.mean_quiet_s)


@dataclass(frozen=True, slots=True)
class Ramp:
    """A Poisson process whose rate climbs linearly over ``duration_s`` and then stays."""

    start_rate: float
    end_rate: float
    duration_s: float

    def times(self, count: int, rng: random.Random) -> list[float]:
        """Arrival times: unit-rate arrivals mapped through the inverse of the expected count."""
        return [self._time_of(c) for c in _accumulate([_exponential(rng) for _ in range(count)])]

    def _time_of(self, expected: float) -> float:
        slope = (self.end_rate - self.start_rate) / self.duration_s
        in_ramp = (self.start_rate + self.end_rate) * self.duration_s / 2.0
        if expected >= in_ramp:
            return self.duration_s + (expected - in_ramp) / self.end_rate
        if abs(slope) < 1e-12:
            return expected / self.start_rate
        return (math.sqrt(self.start_rate**2 + 2.0 * slope * expected) - self.start_rate) / slope


def arrivals_from(table: Mapping[str, Any]) -> Arrivals:
    """A model from a table such as ``{kind = "poisson", rate = 4}``. Raises ValueError."""
    fields = dict(table)
    kind = fields.pop("kind", None)
    models = {
        "at-once": AtOnce,
        "constant": Constant,
        "poisson": Poisson,
        "gamma": Gamma,
        "mmpp": Modulated,
        "ramp": Ramp,
    }
    if kind not in models:
        raise ValueError(f"arrivals of kind {kind!r}; known: {', '.join(models)}")
    try:
        model: Arrivals = models[kind](**fields)
    except TypeError as error:
        raise ValueError(f"arrivals of kind {kind!r}: {error}") from None
    for name, value in fields.items():
        zero_is_fine = name in ("quiet_rate", "start_rate")
        if not isinstance(value, int | float) or value < 0 or (value == 0 and not zero_is_fine):
            raise ValueError(f"arrivals of kind {kind!r}: {name} is {value!r}, not above 0")
    return model


def _exponential(rng: random.Random) -> float:
    return -math.log(1.0 - rng.random())


def _accumulate(gaps: list[float]) -> list[float]:
    """Running sums by fsum-like compensation, so that long schedules keep their rate exactly."""
    times: list[float] = []
    total = lost = 0.0
    for gap in gaps:
        y = gap - lost
        t = total + y
        lost = (t - total) - y
        total = t
        times.append(total)
    return times
