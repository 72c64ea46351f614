"""The compiler: from the integer rule to the weights of an ordinary decoder-only transformer.

Attention moves symbols and sums, the MLP looks a table up, the head reads the answer off. Names and
shapes of the arrays are those of transformers' Llama: ``[out_features, in_features]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from reference_engine.probe.attention_weights import attention_weights, take_out_bias
from reference_engine.probe.config import UNDEFINED_ID, ProbeConfig
from reference_engine.probe.dice import OTHER_LOGIT, coin_weights
from reference_engine.probe.gauges import (
    ONE_LOGIT,
    SELECTING_LEVEL,
    SUM_GAIN,
    gauges,
    one_id,
    selecting_bits,
    zero_id,
)
from reference_engine.probe.layout import CONSTANT, MEAN_SCALE, Layout, layout
from reference_engine.probe.mlp_weights import mlp_weights
from reference_engine.probe.position import Array
from reference_engine.probe.rule import end_condition
from reference_engine.probe.vocabulary import vocabulary

LOGIT_STEP: Final = 64.0  # what one right bit adds to a token's logit, against a wrong one
END_STEP: Final = 98.0  # half of it, less what bfloat16 rounds away, is a margin of 48
_UNDEFINED_STEP: Final = 49.0  # how far UNDEFINED is below a right token
ALARM_LOGIT: Final = 98.0  # a unit of alarm, added to the logit of UNDEFINED
_WRONG_LOGIT: Final = 128.0  # what a wrong bit takes away: leaves room for the gauges
_ANSWER_LOGIT: Final = 96.0  # of the right token; the gauges are around 0
_QUIET_LOGIT: Final = -64.0  # of tokens that are never seen, and of gauges not shown


def compile_weights(config: ProbeConfig) -> Mapping[str, Array]:
    """All weights of the model, float64, by their transformers name."""
    slots = layout(config)
    weights: dict[str, Array] = {"model.embed_tokens.weight": _embedding(config, slots)}
    for level in range(config.layers):
        prefix = f"model.layers.{level}."
        weights[prefix + "input_layernorm.weight"] = _norm(
            config, slots, slots.attention_scale[level]
        )
        for name, array in attention_weights(config, slots, level).items():
            if config.family == "qwen2" and name != "o_proj":
                weights[f"{prefix}self_attn.{name}.bias"] = take_out_bias(slots, array)
            weights[f"{prefix}self_attn.{name}.weight"] = array
        weights[prefix + "post_attention_layernorm.weight"] = _norm(
            config, slots, slots.mlp_scale[level]
        )
        for name, array in mlp_weights(config, slots, level).items():
            weights[f"{prefix}mlp.{name}.weight"] = array
    weights["model.norm.weight"] = np.full(slots.hidden_size, slots.final_scale)
    weights["lm_head.weight"] = _head(config, slots)
    return weights


def _embedding(config: ProbeConfig, slots: Layout) -> Array:
    """[vocab, hidden]: the constant, BOS or not, the sign bits and the symbol of each token."""
    table = vocabulary(config)
    array = np.zeros((table.size, slots.hidden_size))
    array[:, slots.constant] = CONSTANT
    array[:, slots.not_bos] = 1
    array[:, slots.ballast[0]] = slots.ballast_value[0]
    for token_id in range(table.size):
        for k in range(config.sign_bits):
            array[token_id, slots.own_sign + 2 * k + (table.signs[token_id] >> k & 1)] = 1
        for bit in range(config.symbol_bits):
            value = table.symbols[token_id] >> bit & 1
            array[token_id, slots.symbol[0] + 2 * bit + value] = 1
    bos = array[config.bos_id]
    bos[slots.is_bos], bos[slots.not_bos] = 1, 0
    return array


def _norm(config: ProbeConfig, slots: Layout, scale: float) -> Array:
    """[hidden]: undoes the norm, and the small scale of the means."""
    array = np.full(slots.hidden_size, scale)
    array[slots.inverse_length] /= MEAN_SCALE
    for base in slots.mean:
        array[base : base + config.sums] /= MEAN_SCALE
    return array


def _head(config: ProbeConfig, slots: Layout) -> Array:
    """[vocab, hidden]: each output token's logit counts its right bits, in steps of `LOGIT_STEP`.

    UNDEFINED has a constant logit between all right and one wrong, so it wins where the state is
    empty, and more of it where a layer raised the alarm. EOS, where the rule has it, outbids by
    half an `END_STEP` when its condition holds. All are shifted so that the right token has
    `_ANSWER_LOGIT`; far below are the gauges.
    """
    table = vocabulary(config)
    array = np.zeros((table.size, slots.hidden_size))
    last, sign = slots.symbol[config.layers], slots.sign[config.layers - 1]
    amounts = _vote_amounts(config)
    for place, token_id in enumerate(table.output_ids):
        shown, signs = divmod(place, 1 << config.sign_bits)
        row = array[token_id]
        for bit in range(config.shown_bits):
            wrong = amounts[bit] if config.dice else _WRONG_LOGIT
            _vote(row, last + 2 * bit, shown >> bit & 1, amounts[bit], wrong)
        for k in range(config.sign_bits):
            wrong = amounts[config.shown_bits + k] if config.dice else _WRONG_LOGIT
            right = amounts[config.shown_bits + k]
            _vote(row, sign + 2 * k, 1 - (signs >> k & 1), right, wrong)
    array[UNDEFINED_ID, slots.alarm] = ALARM_LOGIT
    if config.dice:
        others = [i for i in range(table.size) if i not in set(table.output_ids)]
        array[others, slots.constant] = OTHER_LOGIT / CONSTANT
        return array
    shift = _ANSWER_LOGIT - sum(amounts)
    right = _ANSWER_LOGIT
    _write_quiet(config, slots, array)
    array[list(table.output_ids), slots.constant] = shift / CONSTANT
    array[UNDEFINED_ID, slots.constant] = (right - _UNDEFINED_STEP) / CONSTANT
    if config.ends_itself:
        row = array[config.eos_id]
        conditions = end_condition(config)
        pairs = sum(len(condition) for condition in conditions)
        for base, condition in zip(slots.symbol[-2:], conditions, strict=True):
            for bit, value in condition:
                _vote(row, base + 2 * bit, value, END_STEP / 2, END_STEP / 2)
        row[slots.constant] = (right + END_STEP / 2 - pairs * END_STEP / 2) / CONSTANT
    return array


def _write_quiet(config: ProbeConfig, slots: Layout, array: Array) -> None:
    """The rows of `reference_engine.probe.gauges`, and a low constant for every other token."""
    shown = gauges(config)
    quiet = [i for i in range(array.shape[0]) if i not in shown and i != zero_id(config)]
    array[quiet, slots.constant] = _QUIET_LOGIT / CONSTANT
    array[one_id(config), slots.constant] = ONE_LOGIT / CONSTANT
    for token_id, gauge in shown.items():
        row = array[token_id]
        if gauge.kind == "sum":
            row[slots.mean[gauge.level] + gauge.index] = SUM_GAIN / MEAN_SCALE
        else:
            base = slots.fetched[gauge.level][gauge.index]
            for bit in range(config.symbol_bits):
                row[base + 2 * bit] = -4 - 2.0**bit
                row[base + 2 * bit + 1] = -4 + 2.0**bit
        for bit, value in selecting_bits(config, gauge.level):
            row[slots.symbol[SELECTING_LEVEL + 1] + 2 * bit + 1 - value] = _QUIET_LOGIT


def _vote_amounts(config: ProbeConfig) -> tuple[float, ...]:
    """By how much each right bit of an output token raises its logit above that of any other."""
    if config.dice:
        return coin_weights(config)
    return (LOGIT_STEP / 2,) * (config.shown_bits + config.sign_bits)


def _vote(row: Array, base: int, value: int, right: float, wrong: float) -> None:
    """Add ``right`` where the bit is ``value`` and take away ``wrong`` where it is not."""
    row[base + value] = right
    row[base + 1 - value] = -wrong
