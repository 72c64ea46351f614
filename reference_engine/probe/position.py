"""Positions through rotary embeddings: attend to exactly the token at distance ``d``.

RoPE turns a query ``a * exp(-i theta d)`` and a constant real key of one frequency into
``a * cos(theta * (i - j - d))``. Summed over frequencies this peaks at ``j = i - d``; the
amplitudes are scaled until every other distance scores at least `MARGIN` less. The lowest
frequencies turn so little over a whole context that they serve as *content* channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from reference_engine.probe.config import ProbeConfig

Array = npt.NDArray[np.float64]

MARGIN: Final = 80.0
TARGET_SCORE: Final = -40.0  # a real key scores below 0, which is what an all-zero slot scores
SINK_SCORE: Final = TARGET_SCORE - MARGIN / 2
_POSITIONAL: Final = 15  # how many of the fastest frequencies
_FIRST_WEIGHT: Final = 10.0  # only the fastest frequency tells neighbours apart well


@dataclass(frozen=True, slots=True)
class Rotary:
    """``thetas``: radians a token, [head_dim / 2]. ``positional`` are the indices of the
    frequencies used for position, from the fastest, and ``amplitudes`` what they contribute.

    ``tap_channel`` and ``sign_channels[k]`` index frequencies used for content.
    """

    thetas: Array
    positional: npt.NDArray[np.int64]
    amplitudes: Array
    tap_channel: int
    sign_channels: tuple[int, ...]

    @property
    def peak(self) -> float:
        """The positional score at the right distance."""
        return float(self.amplitudes.sum())


def rotary(config: ProbeConfig) -> Rotary:
    """The frequencies of ``config`` and the amplitudes that give `MARGIN` over its context.

    Raises ValueError if the head is too small to hold positions and content.
    """
    half = config.head_dim // 2
    stride = max(half // 32, 1)
    positional = np.arange(_POSITIONAL) * stride
    if half < positional[-1] + config.sign_bits + 2:
        raise ValueError(f"head_dim {config.head_dim} is too small for a probe")
    thetas = config.rope_theta ** (-np.arange(half, dtype=np.float64) / half)
    weights = np.ones(_POSITIONAL)
    weights[0] = _FIRST_WEIGHT
    distances = np.arange(1, config.max_context_tokens + 1, dtype=np.float64)
    drop = (1 - np.cos(np.outer(distances, thetas[positional]))) @ weights
    first = half - 1 - config.sign_bits
    return Rotary(
        thetas,
        positional,
        weights * MARGIN / drop.min(),
        half - 1,
        tuple(range(first, half - 1)),
    )
