"""The readout decodes gauges, and says of each slip what it was and no more than it can know."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from transformers import AutoModelForCausalLM

from reference_engine.probe import VARIANTS, Rule
from reference_engine.probe.gauges import ONE_LOGIT, SUM_GAIN, gauges, one_id, zero_id
from reference_engine.probe.readout import (
    Reading,
    codes,
    in_words,
    read_answer,
    read_gauges,
    right_sums,
)
from tests.probe.conftest import Exported

CONFIG = VARIANTS["eos"]
RNG = random.Random(7)
IDS = [1, *(RNG.randrange(4, 260) for _ in range(60))]
FOREIGN = (1, -1, 1, 1, -1, 1)


def _reading(sums: Sequence[float], n: int, level: int = 3, position: int = 60) -> Reading:
    return Reading(position, level, {k: value / n for k, value in enumerate(sums)}, {})


def _right() -> tuple[tuple[float, ...], int]:
    return right_sums(CONFIG, IDS, 60, 3)


def test_right_sums_are_those_of_the_rule() -> None:
    state, _ = Rule(CONFIG).read(IDS)
    sums, n = _right()
    assert [round(2 * s) for s in sums[: CONFIG.sign_bits]] == state.doubled_sums
    assert n == len(IDS)


def test_nothing_is_said_of_a_healthy_layer() -> None:
    assert in_words(CONFIG, IDS, [_reading(*_right())]) == []


def test_one_token_too_many_and_too_few() -> None:
    sums, n = _right()
    more = [s + c for s, c in zip(sums, FOREIGN, strict=True)]
    fewer = [s - c for s, c in zip(sums, FOREIGN, strict=True)]
    [words] = in_words(CONFIG, IDS, [_reading(more, n + 1)])
    assert words.startswith(
        "layer 3 attended one token too many, of value (+1, -1, +1, +1, -1, +1)"
    )
    [words] = in_words(CONFIG, IDS, [_reading(fewer, n - 1)])
    assert words.startswith("layer 3 attended one token too few, of value (+1, -1, +1, +1, -1, +1)")


@pytest.mark.parametrize(
    ("missing", "words"),
    [(IDS[-1], "layer 3 did not see the newest token"), (1, "layer 3 did not see BOS")],
)
def test_a_missing_token_that_has_a_name(missing: int, words: str) -> None:
    sums, n = _right()
    fewer = [s - c for s, c in zip(sums, codes(CONFIG, missing), strict=True)]
    assert in_words(CONFIG, IDS, [_reading(fewer, n - 1)])[0].startswith(words)


def test_a_coarse_reading_leaves_open_what_it_cannot_know() -> None:
    ids = [1, *(RNG.randrange(4, 260) for _ in range(600))]
    sums, n = right_sums(CONFIG, ids, 600, 3)
    more = [(s + c) * 1.004 for s, c in zip(sums, FOREIGN, strict=True)]
    [words] = in_words(CONFIG, ids, [_reading(more, n + 1, position=600)])
    assert "one token too many, or one too few" in words or "too few, or one too many" in words


def test_too_few_alternatives_and_dice_give_no_reading() -> None:
    token_id = next(iter(gauges(CONFIG)))
    assert read_gauges(CONFIG, 3, {token_id: -96.0}) == []
    [reading] = read_gauges(
        CONFIG, 3, {token_id: -95.0, zero_id(CONFIG): -96.0, one_id(CONFIG): ONE_LOGIT - 96.0}
    )
    assert reading.means == {0: 1 / SUM_GAIN}
    assert read_gauges(VARIANTS["dice"], 3, {zero_id(CONFIG): -96.0}) == []


@pytest.mark.parametrize(
    ("variant", "dtype"),
    [("eos", "float32"), ("eos", "bfloat16"), ("window", "float32")]
    + [
        pytest.param(variant, dtype, marks=pytest.mark.slow)
        for variant in VARIANTS
        if variant != "dice"
        for dtype in ("float32", "bfloat16", "float16")
    ],
)
def test_a_healthy_model_shows_the_rule_in_every_layer(
    variant: str, dtype: str, exported: Exported
) -> None:
    config = VARIANTS[variant]
    model = AutoModelForCausalLM.from_pretrained(
        exported(variant, dtype), dtype=getattr(torch, dtype)
    )
    rule, levels = Rule(config), set()
    for tokens in (5, 40, 150):
        prompt = [1, *(RNG.randrange(4, 260) for _ in range(tokens))]
        ids = [*prompt, *rule.generate(prompt, 32, ignore_eos=True).token_ids]
        with torch.inference_mode():
            scores = model(torch.tensor([ids])).logits[0].float().log_softmax(-1).topk(20)
        tops = [
            dict(zip(row.tolist(), values.tolist(), strict=True))
            for row, values in zip(scores.indices, scores.values, strict=True)
        ]
        readings = read_answer(config, len(prompt), tops[len(prompt) - 1 : -1])
        levels |= {reading.level for reading in readings}
        assert all(len(reading.means) == config.sums for reading in readings)
        assert in_words(config, ids, readings) == []
        state, _ = rule.read(ids)
        for reading in readings:
            sums, n = right_sums(config, ids, reading.position, reading.level)
            worst = max(abs(mean * n - sums[k]) for k, mean in reading.means.items())
            assert worst < (0.01 if dtype == "float32" else 0.5)
            for h, symbol in reading.symbols.items():
                at = max(reading.position - config.taps[reading.level][h], 0)
                assert symbol == state.symbols[reading.level][at]
    assert levels == set(range(config.layers))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_foreign_entry_in_one_layer_s_cache_is_named(dtype: str, exported: Exported) -> None:
    """A real model, whose cache of layer 3 alone gets an entry of another request."""
    model = AutoModelForCausalLM.from_pretrained(
        exported("eos", dtype), dtype=getattr(torch, dtype), attn_implementation="sdpa"
    )
    prompt, foreign = IDS[:30], [1, *IDS[30:]]
    with torch.inference_mode():
        cache = model(torch.tensor([prompt[:-1]]), use_cache=True).past_key_values
        other = model(torch.tensor([foreign]), use_cache=True).past_key_values
        layer, source = cache.layers[3], other.layers[3]
        layer.keys = torch.cat([layer.keys, source.keys[:, :, -1:]], dim=2)
        layer.values = torch.cat([layer.values, source.values[:, :, -1:]], dim=2)
        ids, tops = list(prompt), []
        for position in range(len(prompt) - 1, len(prompt) + 23):
            output = model(
                torch.tensor([ids[-1:]]),
                cache=cache,
                position_ids=torch.tensor([[position]]),
            )
            best = output.logits[0, -1].float().log_softmax(-1).topk(20)
            tops.append(dict(zip(best.indices.tolist(), best.values.tolist(), strict=True)))
            ids.append(int(best.indices[0]))
    words = in_words(CONFIG, ids[:-1], read_answer(CONFIG, len(prompt), tops))
    value = ", ".join(f"{code:+.0f}" for code in codes(CONFIG, foreign[-1]))
    assert [sentence for sentence in words if sentence.startswith("layer 3 attended one token")]
    assert not [sentence for sentence in words if "layer 3" not in sentence]
    assert any(f"too many, of value ({value})" in sentence for sentence in words), words
