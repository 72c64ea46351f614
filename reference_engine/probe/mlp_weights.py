"""The MLP of one layer: the table that computes the next symbol, and the alarms.

An alarm is raised by what cannot happen in a healthy run, whatever the prompt: two layers that see
the same tokens disagree about a sum by half a token or more, or a sign head found a token whose key
and value have different sign bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from typing import Final

import numpy as np

from reference_engine.probe.config import ProbeConfig
from reference_engine.probe.layout import CONSTANT, Layout, layout
from reference_engine.probe.position import Array
from reference_engine.probe.rule import layer_constant

_SHARPNESS: Final = 512.0
_FULL: Final = 240.0  # gate of a unit whose inputs all match: 512 * 15/32
_HALF: Final = 176.0  # gate of its partner: 512 * 11/32; their difference is the output

_ALARM_GAIN: Final = 32768.0
_ALARM_SHARE: Final = 1 / 16
_TOLERATED_TOKENS: Final = 0.375  # of a difference between two layers' sums
_TOLERATED_GATE: Final = 6.0

Gate = dict[int, float]


def intermediate_size(config: ProbeConfig) -> int:
    """Units of the largest layer, rounded up to a multiple of 32."""
    slots = layout(config)
    units = [
        2 * len(list(_table(config, slots, level))) + len(list(_alarms(config, slots, level))) + 1
        for level in range(config.layers)
    ]
    return -(-max(units) // 32) * 32


def mlp_weights(config: ProbeConfig, slots: Layout, level: int) -> dict[str, Array]:
    """``gate_proj``, ``up_proj`` and ``down_proj`` of layer ``level``.

    The table has two units a combination of input bits, whose difference is 0 or 1. With ``x`` of
    ``k`` bits matching, the gates are ``512 * (x - k)`` plus 240 and plus 176: both silu's vanish
    for ``x <= k - 1/2`` and differ by 64 for ``x >= k - 1/3``. So a small error coming in is
    removed, and half a bit, or none, leaves the output empty: no state of the rule.
    """
    size = intermediate_size(config)
    gate, up = (np.zeros((size, slots.hidden_size)) for _ in range(2))
    down = np.zeros((slots.hidden_size, size))
    up[:, slots.constant] = 1 / CONSTANT
    unit = 0
    for inputs, out in _table(config, slots, level):
        for offset, share in ((_FULL, 1.0), (_HALF, -1.0)):
            gate[unit, inputs] = _SHARPNESS
            gate[unit, slots.constant] = (offset - _SHARPNESS * len(inputs)) / CONSTANT
            down[out, unit] = share / (_FULL - _HALF)
            unit += 1
    for alarm in _alarms(config, slots, level):
        for dimension, weight in alarm.items():
            gate[unit, dimension] = weight
        down[slots.alarm, unit] = _ALARM_SHARE
        unit += 1
    if level + 1 < config.layers:
        gate[unit, slots.constant] = 64 / CONSTANT
        down[slots.ballast[level + 1], unit] = slots.ballast_value[level + 1] / 64
    return {"gate_proj": gate, "up_proj": up, "down_proj": down}


def _table(config: ProbeConfig, slots: Layout, level: int) -> Iterator[tuple[list[int], int]]:
    """For each combination of input bits: the dimensions that must be 1, and the one to set."""
    for bit in range(config.symbol_bits):
        pairs = _inputs(config, slots, level, bit)
        constant = layer_constant(config, level) >> bit & 1
        for values in product((0, 1), repeat=len(pairs)):
            inputs = [base + value for base, value in zip(pairs, values, strict=True)]
            yield inputs, slots.symbol[level + 1] + 2 * bit + (sum(values) + constant) % 2


def _inputs(config: ProbeConfig, slots: Layout, level: int, bit: int) -> list[int]:
    """The pairs whose parity is ``bit`` of ``A[level]``: base dimensions of (is 0, is 1)."""
    bits = config.symbol_bits
    pairs = [slots.symbol[level] + 2 * ((bit + config.own_rotation) % bits)]
    pairs += [
        base + 2 * ((bit + config.rotations[h]) % bits)
        for h, base in enumerate(slots.fetched[level])
    ]
    if level:
        pairs += [slots.sign[level] + 2 * k for k in range(bit, config.sign_bits, bits)]
    return pairs


def _alarms(config: ProbeConfig, slots: Layout, level: int) -> Iterator[Gate]:
    """The gates that are far below 0 in every healthy state, each by dimension."""
    if level == 0:
        yield from _mixed_signs(config, slots, slots.sign[0], slots.own_sign)
        return
    windows = [config.window(other) for other in range(level + 1)]
    twins = [other for other in range(level) if windows[other] == windows[level]]
    if twins:
        yield from _different_sums(config, slots, level, twins[-1])
    views = list(pairwise(windows))
    same = [other for other in range(1, level) if views[other - 1] == views[level - 1]]
    if same:
        yield from _mixed_signs(config, slots, slots.sign[level], slots.sign[same[-1]])
    if len(same) == 1:
        yield from _mixed_signs(config, slots, slots.sign[same[0]], slots.sign[level])


def _different_sums(config: ProbeConfig, slots: Layout, level: int, other: int) -> Iterator[Gate]:
    """Two layers that see the same tokens have the same sums, up to the rounding of a mean.

    What is tolerated is a part of a token, that is of 1 / n; in a window n is at most its size.
    """
    window = config.window(level)
    for k, direction in product(range(config.sums), (1, -1)):
        gate = {
            slots.mean[level] + k: direction * _ALARM_GAIN,
            slots.mean[other] + k: -direction * _ALARM_GAIN,
        }
        if window is None:
            gate[slots.inverse_length] = -_TOLERATED_TOKENS * _ALARM_GAIN
        else:
            gate[slots.constant] = -_TOLERATED_TOKENS * _ALARM_GAIN / window / CONSTANT
        yield gate


def _mixed_signs(
    config: ProbeConfig, slots: Layout, checked: int, reference: int
) -> Iterator[Gate]:
    """A sign head attends to tokens of one sign only, so its pair's other half is exactly 0.

    ``reference`` is a pair of the same sign; where it is 0, ``checked`` must not even be 1 / n.
    """
    for index in range(2 * config.sign_bits):
        yield {
            checked + index: _ALARM_GAIN,
            reference + index: -1.5 * _ALARM_GAIN,
            slots.constant: -_TOLERATED_GATE / CONSTANT,
        }
