"""Gauge tokens: low-ranked logits from which a client reads what each layer saw.

A gauge is a token that is never an answer. In a healthy state its logit lies between -32 and 16
and is at least 80 below the answer's, so it changes no token; with top log-probabilities it shows.
Only one layer's gauges show at a time, those whose layer the bits of ``A[1]`` name, because a
server lists 20 tokens at most; ``A[1]`` changes with every position, so the layers take turns.

- the gauge of sum ``k`` of layer ``l`` has the logit ``16 * S[l][k] / n``. It is near 0, where a
  float of any dtype is finest: the relative error of ``S`` is that of the dtype.
- the gauge of tap ``h`` of layer ``l`` has the logit ``2 * symbol - 31``.
- `zero_id` has the logit 0 whatever the state: log-probabilities minus its own are logits.
- `one_id` has the logit 8 in a healthy state. An alarm swells the residual stream, so that the last
  norm shrinks all other logits alike: what became of the 8 says by how much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from reference_engine.probe.config import FIRST_BYTE_ID, ProbeConfig
from reference_engine.probe.vocabulary import vocabulary

SUM_GAIN: Final = 16.0
ONE_LOGIT: Final = 8.0
SELECTING_LEVEL: Final = 1


@dataclass(frozen=True, slots=True)
class Gauge:
    """What one token's logit tells: sum ``index`` or tap ``index`` of layer ``level``."""

    level: int
    kind: Literal["sum", "tap"]
    index: int


@lru_cache(maxsize=64)
def gauges(config: ProbeConfig) -> Mapping[int, Gauge]:
    """The gauges by token id. Empty for a dice probe, whose logits are its answer."""
    if config.dice:
        return {}
    wanted: list[Gauge] = []
    for level, taps in enumerate(config.taps):
        wanted += [Gauge(level, "sum", k) for k in range(config.sums)]
        wanted += [Gauge(level, "tap", h) for h in range(len(taps))]
    return dict(zip(_quiet_ids(config)[2:], wanted, strict=False))


def zero_id(config: ProbeConfig) -> int:
    """The token whose logit is 0."""
    return _quiet_ids(config)[0]


def one_id(config: ProbeConfig) -> int:
    """The token whose logit shows the scale of all others."""
    return _quiet_ids(config)[1]


def _quiet_ids(config: ProbeConfig) -> list[int]:
    """Tokens that are no answer and that any server can write: printable bytes, then spares."""
    table = vocabulary(config)
    printable = range(FIRST_BYTE_ID + 0x20, FIRST_BYTE_ID + 0x7F)
    spares = range(FIRST_BYTE_ID + 256, table.size)
    return [i for i in (*printable, *spares) if i not in set(table.output_ids)]


def selecting_bits(config: ProbeConfig, level: int) -> Iterator[tuple[int, int]]:
    """The (bit, value) pairs of ``A[1]`` that show layer ``level``.

    Codes that would name no layer are shared out: a layer leaves out bits to take them too.
    """
    bits = (config.layers - 1).bit_length()
    free = 0
    for bit in range(bits):
        mask = free | 1 << bit
        if not level & mask and all(
            level | extra >= config.layers for extra in range(1, mask + 1) if not extra & ~mask
        ):
            free = mask
    for bit in range(bits):
        if not free >> bit & 1:
            yield bit, level >> bit & 1
