"""What each experiment found: plain numbers, one type an experiment."""

from __future__ import annotations

from dataclasses import dataclass

from harness.article.trial import Trial
from harness.report.step import Step


@dataclass(frozen=True, slots=True)
class Slope:
    """A straight line through measurements. Times in seconds, lengths in tokens.

    ``low`` and ``high`` bound the slope at 95%.
    """

    per_token_s: float
    low: float
    high: float
    at_zero_s: float


@dataclass(frozen=True, slots=True)
class FirstToken:
    """One stream: the wait for its first token, then the time of each later one, in seconds."""

    prompt_tokens: int
    first_s: float
    later_s: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """How many times longer the first token takes than a later one, in the median."""
        ordered = sorted(self.later_s)
        return self.first_s / ordered[len(ordered) // 2]


@dataclass(frozen=True, slots=True)
class CacheCost:
    """Seconds for the next token at each length, with the cache and by computing all again."""

    lengths: tuple[int, ...]
    cached_s: tuple[float, ...]
    recomputed_s: tuple[float, ...]
    cached_slope: Slope
    recomputed_slope: Slope


@dataclass(frozen=True, slots=True)
class CacheSize:
    """Bytes that one token's keys and values take. ``measured`` is what the engine allocated."""

    name: str
    layers: int
    kv_heads: int
    head_dim: int
    element_bytes: int
    measured: int | None = None

    @property
    def per_layer(self) -> int:
        """2 * kv_heads * head_dim * bytes: keys and values."""
        return 2 * self.kv_heads * self.head_dim * self.element_bytes

    @property
    def per_token(self) -> int:
        """All layers together."""
        return self.layers * self.per_layer


@dataclass(frozen=True, slots=True)
class ChunkedPrefill:
    """A prompt of ``prompt_tokens`` prefilled in pieces of at most ``budget`` tokens."""

    prompt_tokens: int
    budget: int
    chunks: tuple[int, ...]
    peak_rows: int
    cpu_s: float
    same_answer: bool


@dataclass(frozen=True, slots=True)
class Padding:
    """One prompt of ``prompt_tokens`` joins ``streams - 1`` decoding ones, both ways."""

    streams: int
    prompt_tokens: int
    ragged_rows: int
    padded_rows: int
    ragged_s: float
    padded_s: float

    @property
    def wasted(self) -> int:
        """(n - 1) * (B - 1)."""
        return self.padded_rows - self.ragged_rows

    @property
    def ratio(self) -> float:
        """How many times longer the padded step takes."""
        return self.padded_s / self.ragged_s


@dataclass(frozen=True, slots=True)
class Policy:
    """One way of batching on the common workload."""

    name: str
    explanation: str
    useful_tokens: int
    rows: int
    cpu_s: float
    steps: int

    @property
    def rate(self) -> float:
        """Useful output tokens a processor second."""
        return self.useful_tokens / self.cpu_s


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that the page shows."""

    model: str
    first_token: FirstToken
    cache_cost: CacheCost
    cache_sizes: tuple[CacheSize, ...]
    chunked: tuple[ChunkedPrefill, ...]
    padding: Padding
    policies: tuple[Policy, ...]
    continuous: Trial
    timeline: tuple[Step, ...]
