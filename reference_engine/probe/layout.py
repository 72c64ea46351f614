"""The residual stream's dimensions, and the norm it has at each depth.

Every slot is written once and never reused, so rounding never accumulates. The squared norm is the
same for every token; at the input of each attention one dimension of ballast brings it to a value
whose reciprocal root is a multiple of 1/256: then bf16 rounds the normed value of a 1 to the same
number for every token, and sums of +1 and -1 over thousands of tokens stay exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from reference_engine.probe.config import ProbeConfig

CONSTANT: Final = 16.0
MEAN_SCALE: Final = 1 / 16  # means are stored small, so that they hardly move the norm
_GRID: Final = 256


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each slot begins. A pair of dimensions holds a bit one-hot: ``base + 2 * bit + value``.

    ``symbol[l + 1]`` holds ``A[l]``, ``fetched[l][h]`` what tap ``h`` brought, ``mean[l]`` the
    ``sign_bits`` means ``S / n``, ``sign[l]`` the pairs ``g``. ``attention_scale[l]`` and
    ``mlp_scale[l]`` are root mean squares; ``ballast_value[l]`` goes into ``ballast[l]``, the first
    by the embedding, the others by the MLP of the layer before.
    """

    hidden_size: int
    constant: int
    is_bos: int
    not_bos: int
    codes: int
    ballast: tuple[int, ...]
    symbol: tuple[int, ...]
    fetched: tuple[tuple[int, ...], ...]
    mean: tuple[int, ...]
    sign: tuple[int, ...]
    ballast_value: tuple[float, ...]
    attention_scale: tuple[float, ...]
    mlp_scale: tuple[float, ...]
    final_scale: float


def layout(config: ProbeConfig) -> Layout:
    """Lay the slots out one after the other."""
    bits, signs, layers = config.symbol_bits, config.sign_bits, config.layers
    at = 3
    codes, at = at, at + signs
    ballast, at = tuple(range(at, at + layers + 1)), at + layers + 1
    symbol, at = [at], at + 2 * bits
    fetched, mean, sign = [], [], []
    for taps in config.taps:
        fetched.append(tuple(at + 2 * bits * h for h in range(len(taps))))
        at += 2 * bits * len(taps)
        mean.append(at)
        at += signs
        sign.append(at)
        at += 2 * signs
        symbol.append(at)
        at += 2 * bits
    multiple = math.lcm(32, config.heads)
    hidden = -(-at // multiple) * multiple
    values, before, within, final = _norms(config, hidden)
    return Layout(
        hidden_size=hidden,
        constant=0,
        is_bos=1,
        not_bos=2,
        codes=codes,
        ballast=ballast,
        symbol=tuple(symbol),
        fetched=tuple(fetched),
        mean=tuple(mean),
        sign=tuple(sign),
        ballast_value=values,
        attention_scale=before,
        mlp_scale=within,
        final_scale=final,
    )


def embedding_square(config: ProbeConfig) -> float:
    """The squared norm of a token's embedding without its ballast."""
    return CONSTANT**2 + 1 + config.sign_bits + config.symbol_bits


def _norms(
    config: ProbeConfig, hidden: int
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...], float]:
    """Ballast values and the root mean square before each attention, each MLP and the head."""
    square = embedding_square(config)
    values, before, within = [], [], []
    for level, taps in enumerate(config.taps):
        target = _next_on_grid(square, hidden)
        values.append(math.sqrt(target - square))
        before.append(math.sqrt(target / hidden))
        square = target + len(taps) * config.symbol_bits + (config.sign_bits if level else 0)
        within.append(math.sqrt(square / hidden))
        square += config.symbol_bits
    return tuple(values), tuple(before), tuple(within), math.sqrt(square / hidden)


def _next_on_grid(square: float, hidden: int) -> float:
    """The smallest squared norm >= ``square`` whose 1/rms is a multiple of 1/256."""
    steps = math.floor(_GRID / math.sqrt(square / hidden))
    return hidden / (steps / _GRID) ** 2
