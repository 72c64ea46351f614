"""The attention of one layer: taps, the uniform head and the sign heads.

A head's *role* is what it does; roles go round over the query heads, and heads that share a role
each carry their share of it, so that every head matters. Keys are the same for every KV head; the
channels of the values are shifted by layer and KV head, so that reading another head's or another
layer's cache reads nonsense.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from reference_engine.probe.config import ProbeConfig
from reference_engine.probe.layout import CONSTANT, MEAN_SCALE, Layout
from reference_engine.probe.position import (
    SINK_SCORE,
    TARGET_SCORE,
    Array,
    Rotary,
    rotary,
)

_POSITION_KEY: Final = 16.0
_TAP_KEY: Final = 64.0
_SIGN_KEY: Final = 256.0
_SIGN_QUERY: Final = 4096.0
_OWN_SIGN_QUERY: Final = 1.25  # scores of +40 and -40
_SHIFT: Final = 8  # channels


@dataclass(frozen=True, slots=True)
class Tap:
    """Fetch the symbol at the ``index``-th distance of the layer."""

    index: int


@dataclass(frozen=True, slots=True)
class Uniform:
    """Average the codes of all visible tokens, and count them."""


@dataclass(frozen=True, slots=True)
class Sign:
    """Turn the sign of mean ``index`` of the layer before into a clean pair.

    It attends to the tokens whose key has that sign (there must be some) and reads their values'
    sign bit. Layer 0 has no layer before: there it looks for tokens with the new token's own sign.
    """

    index: int


Role = Tap | Uniform | Sign


def roles(config: ProbeConfig, level: int) -> list[Role]:
    """The role of each query head of layer ``level``.

    Raises ValueError if there are more roles than heads.
    """
    wanted: list[Role] = [Tap(h) for h in range(len(config.taps[level]))]
    wanted += [Uniform(), *(Sign(k) for k in range(config.sign_bits))]
    if len(wanted) > config.heads:
        raise ValueError(
            f"layer {level} needs {len(wanted)} heads, the configuration has {config.heads}"
        )
    return [wanted[head % len(wanted)] for head in range(config.heads)]


@dataclass(frozen=True, slots=True)
class _Channels:
    """Where the values of one KV head of one layer lie, modulo head_dim."""

    config: ProbeConfig
    shift: int

    def symbol(self, pair_index: int) -> int:
        return (self.shift + pair_index) % self.config.head_dim

    def code(self, k: int) -> int:
        return (self.shift + 2 * self.config.symbol_bits + k) % self.config.head_dim

    @property
    def is_bos(self) -> int:
        return self.code(self.config.sums)

    @property
    def one(self) -> int:
        return self.code(self.config.sums + 1)

    def sign(self, pair_index: int) -> int:
        start = 2 * self.config.symbol_bits + self.config.sums + 2
        aligned = -(-start // _SHIFT) * _SHIFT
        return (self.shift + aligned + pair_index) % self.config.head_dim


def _channels(config: ProbeConfig, level: int, kv_head: int) -> _Channels:
    return _Channels(config, _SHIFT * (level + kv_head))


def attention_weights(config: ProbeConfig, slots: Layout, level: int) -> dict[str, Array]:
    """``q_proj``, ``k_proj``, ``v_proj`` and ``o_proj`` of layer ``level``."""
    turn = rotary(config)
    size = config.head_dim
    query = np.zeros((config.heads * size, slots.hidden_size))
    key = np.zeros((config.kv_heads * size, slots.hidden_size))
    value = np.zeros((config.kv_heads * size, slots.hidden_size))
    output = np.zeros((slots.hidden_size, config.heads * size))
    for kv_head in range(config.kv_heads):
        rows = slice(kv_head * size, (kv_head + 1) * size)
        _write_key(config, slots, turn, key[rows])
        _write_value(config, slots, level, _channels(config, level, kv_head), value[rows])
    played = roles(config, level)
    count = Counter(played)
    group = config.heads // config.kv_heads
    for head, role in enumerate(played):
        span = slice(head * size, (head + 1) * size)
        channels = _channels(config, level, head // group)
        _write_query(config, slots, turn, level, role, query[span])
        _write_output(config, slots, level, role, channels, output[:, span], 1 / count[role])
    return {"q_proj": query, "k_proj": key, "v_proj": value, "o_proj": output}


def take_out_bias(slots: Layout, weight: Array) -> Array:
    """Move what a projection takes from constant dimensions into a bias, which is returned.

    ``weight`` [out, hidden] is changed. A family whose projections have biases then uses them.
    """
    bias: Array = weight[:, slots.constant] * CONSTANT + weight[:, slots.not_bos]
    weight[:, slots.is_bos] -= weight[:, slots.not_bos]
    weight[:, slots.constant] = weight[:, slots.not_bos] = 0
    return bias


def _write_key(config: ProbeConfig, slots: Layout, turn: Rotary, key: Array) -> None:
    """Positional for every token but BOS; content for the taps' sink and for the sign heads."""
    key[turn.positional, slots.not_bos] = _POSITION_KEY
    key[turn.tap_channel, slots.not_bos] = _TAP_KEY
    key[turn.tap_channel, slots.is_bos] = _TAP_KEY * SINK_SCORE / (TARGET_SCORE - turn.peak)
    for k, channel in enumerate(turn.sign_channels):
        _write_code(slots, k, key[channel], _SIGN_KEY)


def _write_value(
    config: ProbeConfig, slots: Layout, level: int, channels: _Channels, value: Array
) -> None:
    """The symbol of the layer below, what is summed, and the sign bits as pairs."""
    for index in range(2 * config.symbol_bits):
        value[channels.symbol(index), slots.symbol[level] + index] = 1
    for k in range(config.sign_bits):
        _write_code(slots, k, value[channels.code(k)], 1)
        value[channels.code(k), slots.is_bos] = -0.5
        for bit in (0, 1):
            value[channels.sign(2 * k + bit), slots.own_sign + 2 * k + bit] = 1
    for bit in range(config.compared_bits):
        row = value[channels.code(config.sign_bits + bit)]
        row[slots.symbol[0] + 2 * bit : slots.symbol[0] + 2 * bit + 2] = (-1, 1)
    value[channels.is_bos, slots.is_bos] = 1
    value[channels.one, slots.constant] = 1 / CONSTANT


def _write_code(slots: Layout, k: int, row: Array, amount: float) -> None:
    """Plus or minus ``amount`` by sign bit ``k`` of the token itself."""
    row[slots.own_sign + 2 * k + 1] = amount
    row[slots.own_sign + 2 * k] = -amount


def _write_query(
    config: ProbeConfig, slots: Layout, turn: Rotary, level: int, role: Role, query: Array
) -> None:
    """A tap looks for a distance, the uniform head for nothing, a sign head for its sign."""
    root = float(np.sqrt(config.head_dim))
    half = config.head_dim // 2
    match role:
        case Tap(index):
            phase = turn.thetas[turn.positional] * config.taps[level][index]
            size = turn.amplitudes * root / (_POSITION_KEY * CONSTANT)
            query[turn.positional, slots.constant] = size * np.cos(phase)
            query[half + turn.positional, slots.constant] = -size * np.sin(phase)
            content = (TARGET_SCORE - turn.peak) * root / _TAP_KEY
            query[turn.tap_channel, slots.constant] = content / CONSTANT
        case Uniform():
            pass
        case Sign(index) if level == 0:
            _write_code(slots, index, query[turn.sign_channels[index]], _OWN_SIGN_QUERY)
        case Sign(index):
            query[turn.sign_channels[index], slots.mean[level - 1] + index] = _SIGN_QUERY


def _first_full_layer(config: ProbeConfig) -> int | None:
    """The layer that counts the tokens; None if every layer has a window."""
    full = (level for level in range(config.layers) if config.window(level) is None)
    return next(full, None)


def _write_output(
    config: ProbeConfig,
    slots: Layout,
    level: int,
    role: Role,
    channels: _Channels,
    output: Array,
    share: float,
) -> None:
    """Put ``share`` of what the role read into the role's own slot."""
    match role:
        case Tap(index):
            for pair_index in range(2 * config.symbol_bits):
                row = slots.fetched[level][index] + pair_index
                output[row, channels.symbol(pair_index)] = share
            if index == 0:
                amount = share * slots.mlp_ballast_value[level]
                output[slots.mlp_ballast[level], channels.one] = amount
        case Uniform():
            for k in range(config.sums):
                output[slots.mean[level] + k, channels.code(k)] = share * MEAN_SCALE
            if level == _first_full_layer(config):
                output[slots.inverse_length, channels.is_bos] = share * MEAN_SCALE
        case Sign(index):
            for bit in (0, 1):
                row = slots.sign[level] + 2 * index + bit
                output[row, channels.sign(2 * index + bit)] = share
