"""The integer rule: against its own definition, written again without any cleverness."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from reference_engine.probe import VARIANTS, ProbeConfig, Rule, vocabulary
from reference_engine.probe.config import BOS_ID, EOS_ID, REVISION
from reference_engine.probe.rule import end_condition, layer_constant

PLAIN, EOS = VARIANTS["plain"], VARIANTS["eos"]
DIGESTS = {
    "plain": "ed69933711da8748",
    "utf8": "4a84dcc3a0907dec",
    "eos": "5391aa8fc88b8430",
    "qwen": "5148d95bb4e34480",
    "dice": "ed69933711da8748",
    "window": "6b02bfa53d8d42e0",
    "mistral-window": "3d1590d62fddec4b",
    "wide": "664f7aa927a0a112",
}


def random_prompt(rng: random.Random, tokens: int) -> list[int]:
    return [BOS_ID] + [rng.randrange(4, 260) for _ in range(tokens - 1)]


def next_by_definition(config: ProbeConfig, ids: Sequence[int]) -> int:
    """The module docstring of `rule`, computed afresh for every position with exact fractions."""
    table = vocabulary(config)
    bits = config.symbol_bits

    def rotate(value: int, by: int) -> int:
        return sum((value >> ((q + by) % bits) & 1) << q for q in range(bits))

    def code(j: int, k: int) -> Fraction:
        return Fraction(1, 2) if j == 0 else Fraction(1 if table.signs[ids[j]] >> k & 1 else -1)

    def seen(level: int, i: int) -> range:
        return range(max(i + 1 - (config.window(level) or i + 1), 0), i + 1)

    def sign(level: int, i: int, k: int) -> int:
        plus = sum(code(j, k) for j in seen(level - 1, i)) > 0
        visible = {code(j, k) > 0 for j in seen(level, i)}
        return int(plus if len(visible) == 2 else visible.pop())

    below = [table.symbols[token] for token in ids]
    history = [below]
    for level, taps in enumerate(config.taps):
        row = []
        for i in range(len(ids)):
            value = rotate(below[i], config.own_rotation) ^ layer_constant(config, level)
            for h, distance in enumerate(taps):
                value ^= rotate(below[max(i - distance, 0)], config.rotations[h])
            if level > 0:
                for k in range(config.sign_bits):
                    value ^= sign(level, i, k) << (k % bits)
            row.append(value)
        history.append(row)
        below = row
    if config.ends_itself:
        conditions = end_condition(config)
        if all(
            values[-1] >> bit & 1 == wanted
            for values, condition in zip(history[-2:], conditions, strict=True)
            for bit, wanted in condition
        ):
            return EOS_ID
    shown = below[-1] % (1 << config.shown_bits)
    answer_signs = sum(
        (1 - sign(config.layers - 1, len(ids) - 1, k)) << k for k in range(config.sign_bits)
    )
    return table.output_ids[shown * (1 << config.sign_bits) + answer_signs]


@pytest.mark.parametrize("config", VARIANTS.values(), ids=lambda c: c.name)
@pytest.mark.parametrize("tokens", [1, 2, 3, 16, 17, 65, 66, 90])
def test_the_rule_is_its_definition(config: ProbeConfig, tokens: int) -> None:
    ids = random_prompt(random.Random(tokens), tokens)
    assert Rule(config).next_token(ids) == next_by_definition(config, ids)


def test_a_window_may_hold_one_sign_only() -> None:
    """More tokens of one sign than the window holds, then as many of the other."""
    config = replace(VARIANTS["window"], windows=(None, 65, None, None, None))
    table = vocabulary(config)
    opposite = next(i for i in range(4, 260) if table.signs[i] == table.signs[70] ^ 15)
    ids = [BOS_ID, *[70] * 90, *[opposite] * 70]
    assert Rule(config).next_token(ids) == next_by_definition(config, ids)


def test_followers_are_the_next_tokens_of_every_prefix() -> None:
    ids = random_prompt(random.Random(1), 40)
    rule = Rule(EOS)
    assert rule.followers(ids) == [rule.next_token(ids[: n + 1]) for n in range(len(ids))]


def test_an_answer_continues_itself() -> None:
    """Prompt plus the first half of the answer gives the second half."""
    ids = random_prompt(random.Random(2), 77)
    rule = Rule(EOS)
    whole = rule.generate(ids, 60, ignore_eos=True).token_ids
    again = rule.generate([*ids, *whole[:25]], 35, ignore_eos=True).token_ids
    assert whole[25:] == again


def test_answers_end_by_themselves_at_ragged_lengths() -> None:
    rng = random.Random(3)
    rule = Rule(EOS)
    answers = [rule.generate(random_prompt(rng, rng.randrange(1, 60)), 400) for _ in range(200)]
    lengths = [len(a.token_ids) for a in answers if a.finish_reason == "stop"]
    assert len(lengths) > 190, "nearly every answer ends by itself within 400 tokens"
    assert 15 < sum(lengths) / len(lengths) < 60
    assert len(set(lengths)) > 40
    assert all(a.token_ids[-1] == EOS_ID for a in answers if a.finish_reason == "stop")
    assert all(EOS_ID not in a.token_ids[:-1] for a in answers)


def test_ignoring_eos_goes_on_from_the_same_tokens() -> None:
    ids = random_prompt(random.Random(4), 20)
    rule = Rule(EOS)
    ended = rule.generate(ids, 400)
    ignored = rule.generate(ids, 400, ignore_eos=True)
    assert ended.finish_reason == "stop"
    assert ignored.finish_reason == "length"
    assert len(ignored.token_ids) == 400
    assert ignored.token_ids[: len(ended.token_ids)] == ended.token_ids


def test_the_plain_rule_never_ends() -> None:
    answer = Rule(PLAIN).generate([BOS_ID, 70], 1000)
    assert EOS_ID not in answer.token_ids
    assert answer.finish_reason == "length"


def test_the_sums_are_driven_to_zero_and_stay_there() -> None:
    ids = random_prompt(random.Random(5), 300)
    rule = Rule(PLAIN)
    answer = rule.generate(ids, 200).token_ids
    state, _ = rule.read([*ids, *answer])
    assert all(abs(total) == 1 for total in state.doubled_sums)


@pytest.mark.parametrize(
    ("ids", "part"),
    [
        ([], "empty"),
        ([70, 71], "begins with BOS"),
        ([1, 70, 1], "begins with BOS"),
        ([1, 5000], "not in the vocabulary"),
        ([1, -1], "not in the vocabulary"),
    ],
)
def test_bad_prompts_are_refused_in_words(ids: list[int], part: str) -> None:
    with pytest.raises(ValueError, match=part):
        Rule(PLAIN).next_token(ids)


def test_the_configuration_survives_its_json_form() -> None:
    for config in VARIANTS.values():
        assert ProbeConfig.from_json(config.to_json()) == config


def test_answers_change_only_with_the_revision() -> None:
    """If this fails, the rule changed: raise `REVISION` and put the new digest here.

    Where only one variant's dials changed, raise what its name says instead.
    """
    rng = random.Random(6)
    prompts = [random_prompt(rng, tokens) for tokens in (1, 5, 40, 700)]
    answers = {
        name: [Rule(config).generate(ids, 40, ignore_eos=True).token_ids for ids in prompts]
        for name, config in VARIANTS.items()
    }
    digests = {
        name: hashlib.sha256(repr(given).encode()).hexdigest()[:16]
        for name, given in answers.items()
    }
    assert (REVISION, digests) == (2, DIGESTS)
