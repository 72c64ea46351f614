"""The compiler: from the integer rule to the weights of an ordinary decoder-only transformer.

Attention moves symbols and sums, the MLP looks a table up, the head reads the answer off. Names and
shapes of the arrays are those of transformers' Llama: ``[out_features, in_features]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Final

import numpy as np

from reference_engine.probe.attention_weights import attention_weights
from reference_engine.probe.config import UNDEFINED_ID, ProbeConfig
from reference_engine.probe.layout import CONSTANT, MEAN_SCALE, Layout, embedding_square, layout
from reference_engine.probe.position import Array
from reference_engine.probe.rule import end_condition, layer_constant
from reference_engine.probe.vocabulary import vocabulary

LOGIT_STEP: Final = 64.0  # what one right bit adds to a token's logit, against a wrong one
END_STEP: Final = 96.0

_SHARPNESS: Final = 512.0
_FULL: Final = 240.0  # gate of a unit whose inputs all match: 512 * 15/32
_HALF: Final = 176.0  # gate of its partner: 512 * 11/32; their difference is the output


def intermediate_size(config: ProbeConfig) -> int:
    """Units of the largest table, and one for the ballast, rounded up to a multiple of 32."""
    slots = layout(config)
    tables = [
        sum(2 << len(_inputs(config, slots, level, bit)) for bit in range(config.symbol_bits))
        for level in range(config.layers)
    ]
    return -(-(max(tables) + 1) // 32) * 32


def compile_weights(config: ProbeConfig) -> Mapping[str, Array]:
    """All weights of the model, float64, by their transformers name."""
    slots = layout(config)
    weights: dict[str, Array] = {"model.embed_tokens.weight": _embedding(config, slots)}
    for level in range(config.layers):
        prefix = f"model.layers.{level}."
        weights[prefix + "input_layernorm.weight"] = _norm(config, slots, level)
        for name, array in attention_weights(config, slots, level).items():
            weights[f"{prefix}self_attn.{name}.weight"] = array
        weights[prefix + "post_attention_layernorm.weight"] = np.full(
            slots.hidden_size, slots.mlp_scale[level]
        )
        for name, array in _mlp(config, slots, level).items():
            weights[f"{prefix}mlp.{name}.weight"] = array
    weights["model.norm.weight"] = np.full(slots.hidden_size, slots.final_scale)
    weights["lm_head.weight"] = _head(config, slots)
    return weights


def _embedding(config: ProbeConfig, slots: Layout) -> Array:
    """[vocab, hidden]: the constant, BOS or not, the codes and the symbol of each token."""
    table = vocabulary(config)
    array = np.zeros((table.size, slots.hidden_size))
    array[:, slots.constant] = CONSTANT
    array[:, slots.not_bos] = 1
    array[:, slots.ballast[0]] = slots.ballast_value[0]
    for token_id in range(table.size):
        for k in range(config.sign_bits):
            array[token_id, slots.codes + k] = 1 if table.signs[token_id] >> k & 1 else -1
        for bit in range(config.symbol_bits):
            value = table.symbols[token_id] >> bit & 1
            array[token_id, slots.symbol[0] + 2 * bit + value] = 1
    bos = array[config.bos_id]
    bos[slots.is_bos], bos[slots.not_bos] = 1, 0
    bos[slots.codes : slots.codes + config.sign_bits] = 0.5
    missing = embedding_square(config) - float((bos**2).sum()) + bos[slots.ballast[0]] ** 2
    bos[slots.ballast[0]] = np.sqrt(slots.ballast_value[0] ** 2 + missing)
    return array


def _norm(config: ProbeConfig, slots: Layout, level: int) -> Array:
    """[hidden]: undoes the norm before layer ``level``'s attention and the scale of the means."""
    array = np.full(slots.hidden_size, slots.attention_scale[level])
    for base in slots.mean:
        array[base : base + config.sign_bits] /= MEAN_SCALE
    return array


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


def _mlp(config: ProbeConfig, slots: Layout, level: int) -> dict[str, Array]:
    """A lookup table: two units a combination of input bits, whose difference is 0 or 1.

    With ``x`` of ``k`` bits matching, the gates are ``512 * (x - k)`` plus 240 and plus 176: both
    silu's vanish for ``x <= k - 1/2`` and differ by 64 for ``x >= k - 1/3``. So a small error
    coming in is removed, and half a bit, or none, leaves the output empty: no state of the rule.
    """
    size = intermediate_size(config)
    gate, up = (np.zeros((size, slots.hidden_size)) for _ in range(2))
    down = np.zeros((slots.hidden_size, size))
    up[:, slots.constant] = 1 / CONSTANT
    unit = 0
    for bit in range(config.symbol_bits):
        pairs = _inputs(config, slots, level, bit)
        constant = layer_constant(config, level) >> bit & 1
        for values in product((0, 1), repeat=len(pairs)):
            out = slots.symbol[level + 1] + 2 * bit + (sum(values) + constant) % 2
            for offset, share in ((_FULL, 1.0), (_HALF, -1.0)):
                for base, value in zip(pairs, values, strict=True):
                    gate[unit, base + value] = _SHARPNESS
                gate[unit, slots.constant] = (offset - _SHARPNESS * len(pairs)) / CONSTANT
                down[out, unit] = share / (_FULL - _HALF)
                unit += 1
    if level + 1 < config.layers:
        gate[unit, slots.constant] = 64 / CONSTANT
        down[slots.ballast[level + 1], unit] = slots.ballast_value[level + 1] / 64
    return {"gate_proj": gate, "up_proj": up, "down_proj": down}


def _head(config: ProbeConfig, slots: Layout) -> Array:
    """[vocab, hidden]: each output token's logit counts its right bits, in steps of `LOGIT_STEP`.

    UNDEFINED has a constant logit between all right and one wrong, so it wins where the state is
    empty. EOS, where the rule has it, outbids by half an `END_STEP` when its condition holds.
    """
    table = vocabulary(config)
    array = np.zeros((table.size, slots.hidden_size))
    last, sign = slots.symbol[config.layers], slots.sign[config.layers - 1]
    for place, token_id in enumerate(table.output_ids):
        shown, signs = divmod(place, 1 << config.sign_bits)
        row = array[token_id]
        for bit in range(config.shown_bits):
            _vote(row, last + 2 * bit, shown >> bit & 1, LOGIT_STEP / 2)
        for k in range(config.sign_bits):
            _vote(row, sign + 2 * k, 1 - (signs >> k & 1), LOGIT_STEP / 2)
    right = (config.shown_bits + config.sign_bits) * LOGIT_STEP / 2
    array[UNDEFINED_ID, slots.constant] = (right - 0.75 * LOGIT_STEP) / CONSTANT
    if config.ends_itself:
        row = array[config.eos_id]
        conditions = end_condition(config)
        pairs = sum(len(condition) for condition in conditions)
        for base, condition in zip(slots.symbol[-2:], conditions, strict=True):
            for bit, value in condition:
                _vote(row, base + 2 * bit, value, END_STEP / 2)
        row[slots.constant] = (right + END_STEP / 2 - pairs * END_STEP / 2) / CONSTANT
    return array


def _vote(row: Array, base: int, value: int, amount: float) -> None:
    """Add ``amount`` where the bit is ``value`` and take it away where it is not."""
    row[base + value] = amount
    row[base + 1 - value] = -amount
