"""The residual stream's dimensions, and the norm it has at each depth.

Every slot is written once and never reused, so rounding never accumulates. The squared norm is the
same for every token; before each attention and each MLP a dimension of ballast brings it to a value
for which the normed value of a 1 rounds to 1 in every dtype. So a table's inputs and outputs are
exact, and sums of +1 and -1 over thousands of tokens are exact and the same in every layer.
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

    ``own_sign`` holds the token's sign bits as pairs, ``symbol[l + 1]`` ``A[l]``, ``fetched[l][h]``
    what tap ``h`` brought, ``mean[l]`` the means ``S / n`` of all sums, ``inverse_length`` 1 / n,
    ``sign[l]`` the pairs ``g`` (in layer 0: the token's own sign bits, read back), ``alarm`` what
    the layers find amiss. ``attention_scale[l]`` and ``mlp_scale[l]`` are root mean squares;
    ``ballast_value[l]`` is written to ``ballast[l]`` before attention ``l`` (by the embedding or
    the MLP before), ``mlp_ballast_value[l]`` to ``mlp_ballast[l]`` before MLP ``l``.
    """

    hidden_size: int
    constant: int
    is_bos: int
    not_bos: int
    own_sign: int
    inverse_length: int
    alarm: int
    ballast: tuple[int, ...]
    mlp_ballast: tuple[int, ...]
    symbol: tuple[int, ...]
    fetched: tuple[tuple[int, ...], ...]
    mean: tuple[int, ...]
    sign: tuple[int, ...]
    ballast_value: tuple[float, ...]
    mlp_ballast_value: tuple[float, ...]
    attention_scale: tuple[float, ...]
    mlp_scale: tuple[float, ...]
    final_scale: float


def layout(config: ProbeConfig) -> Layout:
    """Lay the slots out one after the other."""
    bits, signs, layers = config.symbol_bits, config.sign_bits, config.layers
    at = 5
    own_sign, at = at, at + 2 * signs
    ballast, at = tuple(range(at, at + layers)), at + layers
    mlp_ballast, at = tuple(range(at, at + layers)), at + layers
    symbol, at = [at], at + 2 * bits
    fetched, mean, sign = [], [], []
    for taps in config.taps:
        fetched.append(tuple(at + 2 * bits * h for h in range(len(taps))))
        at += 2 * bits * len(taps)
        mean.append(at)
        at += config.sums
        sign.append(at)
        at += 2 * signs
        symbol.append(at)
        at += 2 * bits
    hidden = _hidden_size(config, at)
    norms = _norms(config, hidden)
    return Layout(
        hidden_size=hidden,
        constant=0,
        is_bos=1,
        not_bos=2,
        own_sign=own_sign,
        inverse_length=3,
        alarm=4,
        ballast=ballast,
        mlp_ballast=mlp_ballast,
        symbol=tuple(symbol),
        fetched=tuple(fetched),
        mean=tuple(mean),
        sign=tuple(sign),
        ballast_value=norms.ballast,
        mlp_ballast_value=norms.mlp_ballast,
        attention_scale=norms.attention,
        mlp_scale=norms.mlp,
        final_scale=norms.final,
    )


def _hidden_size(config: ProbeConfig, used: int) -> int:
    """``used`` dimensions, rounded up; in Qwen2 what all heads make up together.

    vLLM and llama.cpp take a Qwen2 head to be an equal part of the residual stream, whatever
    ``head_dim`` says. Raises ValueError where the heads are too small for that.
    """
    if config.family != "qwen2":
        multiple = math.lcm(32, config.heads)
        return -(-used // multiple) * multiple
    hidden = config.heads * config.head_dim
    if hidden < used:
        raise ValueError(f"{hidden} dimensions of heads cannot hold the {used} that are needed")
    return hidden


@dataclass(frozen=True, slots=True)
class _Norms:
    """Ballast values, and root mean squares before each attention, each MLP and the head."""

    ballast: tuple[float, ...]
    mlp_ballast: tuple[float, ...]
    attention: tuple[float, ...]
    mlp: tuple[float, ...]
    final: float


def _norms(config: ProbeConfig, hidden: int) -> _Norms:
    square = CONSTANT**2 + 1 + config.sign_bits + config.symbol_bits
    targets: list[tuple[float, float]] = []
    ballast: list[float] = []
    for taps in config.taps:
        written = len(taps) * config.symbol_bits + config.sign_bits
        before = _next_on_grid(square, hidden)
        within = _next_on_grid(before + written, hidden)
        ballast += [math.sqrt(before - square), math.sqrt(within - before - written)]
        targets.append((before, within))
        square = within + config.symbol_bits
    return _Norms(
        tuple(ballast[0::2]),
        tuple(ballast[1::2]),
        tuple(math.sqrt(before / hidden) for before, _ in targets),
        tuple(math.sqrt(within / hidden) for _, within in targets),
        math.sqrt(square / hidden),
    )


def _next_on_grid(square: float, hidden: int) -> float:
    """The smallest squared norm >= ``square`` that `_rounds_to_one` likes. ValueError if none."""
    for steps in range(math.floor(_GRID / math.sqrt(square / hidden)), 64, -1):
        if _rounds_to_one(steps / _GRID):
            return hidden / (steps / _GRID) ** 2
    raise ValueError(
        f"no norm above {math.sqrt(square):.0f} keeps sums exact in {hidden} dimensions"
    )


def _rounds_to_one(normed: float) -> bool:
    """Whether a 1, normed to this and multiplied by a rounded weight 1/normed, is safely 1.

    bf16 (8 significant bits) and fp16 (11) must hold the normed value as it is, and the product
    must lie well inside what they round to 1.
    """
    return _rounded(normed, 8) == normed and all(
        -0.1 / 2**bits < _rounded(1 / normed, bits) * normed - 1 < 0.6 / 2**bits for bits in (8, 11)
    )


def _rounded(value: float, bits: int) -> float:
    """``value``, above 0, to ``bits`` significant bits."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(mantissa * (1 << bits)), exponent - bits)
