"""Length models: how many tokens a prompt has and how many are asked for.

All lengths are in tokens, at least 1. Each model draws by inverting its distribution function at
one uniform number, so one request costs one draw and streams stay aligned.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Any, Protocol


class Lengths(Protocol):
    """A distribution of token counts."""

    def draw(self, rng: random.Random) -> int:
        """One length, at least 1."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same length."""

    tokens: int

    def draw(self, rng: random.Random) -> int:
        """The length."""
        rng.random()
        return max(1, self.tokens)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every length from ``low`` to ``high``, both included, equally often."""

    low: int
    high: int

    def draw(self, rng: random.Random) -> int:
        """One length."""
        return max(1, self.low + int(rng.random() * (self.high - self.low + 1)))


@dataclass(frozen=True, slots=True)
class LogNormal:
    """A lognormal with this ``median`` and this ``sigma`` of the logarithm, clipped to a range."""

    median: float
    sigma: float
    low: int = 1
    high: int = 1_000_000

    def draw(self, rng: random.Random) -> int:
        """One length."""
        z = NormalDist().inv_cdf(min(max(rng.random(), 1e-12), 1 - 1e-12))
        return min(max(round(self.median * math.exp(self.sigma * z)), self.low, 1), self.high)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """An empirical distribution by its quantiles: ``at[i]`` of all lengths are <= ``tokens[i]``.

    Between two entries the length is interpolated linearly. ``at`` ascends from 0 to 1.
    """

    at: Sequence[float]
    tokens: Sequence[float]
    scale: float = 1.0

    def __post_init__(self) -> None:
        ascending = all(a <= b for a, b in zip(self.tokens, self.tokens[1:], strict=False))
        strictly = all(a < b for a, b in zip(self.at, self.at[1:], strict=False))
        if len(self.at) != len(self.tokens) or len(self.at) < 2 or not (ascending and strictly):
            raise ValueError("a quantile table needs two ascending columns of the same length")
        if self.at[0] != 0.0 or self.at[-1] != 1.0:
            raise ValueError("a quantile table begins at 0 and ends at 1")

    @property
    def mean(self) -> float:
        """The mean length before rounding."""
        spans = pairwise(zip(self.at, self.tokens, strict=True))
        return self.scale * sum((b - a) * (x + y) / 2 for (a, x), (b, y) in spans)

    def draw(self, rng: random.Random) -> int:
        """One length."""
        u = rng.random()
        i = min(bisect_right(self.at, u), len(self.at) - 1)
        span = self.at[i] - self.at[i - 1]
        share = (u - self.at[i - 1]) / span
        value = self.tokens[i - 1] + share * (self.tokens[i] - self.tokens[i - 1])
        return max(1, round(value * self.scale))


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Lengths at the multiples of ``sizes`` that lie in the range, each -1, 0 and +1."""

    sizes: Sequence[int]
    low: int
    high: int

    @property
    def lengths(self) -> list[int]:
        """The lengths it draws from, ascending."""
        return boundary_lengths(self.sizes, low=self.low, high=self.high)

    def draw(self, rng: random.Random) -> int:
        """One length."""
        lengths = self.lengths
        return lengths[int(rng.random() * len(lengths))]


def boundary_lengths(sizes: Sequence[int], *, low: int, high: int, multiples: int = 3) -> list[int]:
    """1 to ``multiples`` times each size, each -1, 0 and +1, inside [low, high], ascending.

    Sizes are those at which engines change behaviour: page, prefill chunk, window, graph bucket.
    The ends of the range are always in.
    """
    if not 1 <= low <= high:
        raise ValueError(f"an empty range of lengths: {low} to {high}")
    near = {k * size + d for size in sizes for k in range(1, multiples + 1) for d in (-1, 0, 1)}
    return sorted({n for n in near if low <= n <= high} | {low, high})


def lengths_from(table: Mapping[str, Any]) -> Lengths:
    """A model from a table such as ``{kind = "lognormal", median = 100, sigma = 0.8}``.

    Raises ValueError that names the kind or the field.
    """
    fields = dict(table)
    kind = fields.pop("kind", None)
    models = {
        "fixed": Fixed,
        "uniform": Uniform,
        "lognormal": LogNormal,
        "quantiles": Quantiles,
        "boundaries": Boundaries,
    }
    if kind not in models:
        raise ValueError(f"lengths of kind {kind!r}; known: {', '.join(models)}")
    try:
        return models[kind](**fields)  # type: ignore[no-any-return]
    except TypeError as error:
        raise ValueError(f"lengths of kind {kind!r}: {error}") from None
