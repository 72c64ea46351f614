"""A sample of the sensitivity measurement: what must always be seen, and what must not."""

from __future__ import annotations

import random

import pytest

from reference_engine.probe import VARIANTS, Rule, vocabulary
from reference_engine.probe.sensitivity import balanced_prompt
from reference_engine.probe.sensitivity.fault_kinds import CACHE_FAULTS, CONTROLS, kinds_for
from reference_engine.probe.sensitivity.limit import Limit
from reference_engine.probe.sensitivity.measure import Detection, Rate, measure

ALWAYS_SEEN = (
    "entry-zeroed",
    "block-foreign",
    "foreign-visible",
    "foreign-visible-one",
    "token-doubled",
    "last-dropped-one",
    "first-dropped",
    "position+1",
    "position-1",
    "zero-visible-one",
    "nan-visible",
    "wrong-kv-head",
    "wrong-layer",
)


def sample(variant: str, *names: str, requests: int = 6, length: int = 70) -> list[Detection]:
    config = VARIANTS[variant]
    known = {**CONTROLS, **kinds_for(config)}
    faults = [known[name] for name in names]
    return list(measure(config, faults, requests_per_length=requests, lengths=(length,)))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_healthy_cache_gives_the_rules_answers(variant: str) -> None:
    (control,) = sample(variant, "healthy", requests=3)
    assert control.rates[64] == Rate(0, 3)


def test_pages_may_change_places() -> None:
    """Stored keys carry their position: where an entry lies is nobody's business."""
    (control,) = sample("eos", "pages-swapped")
    assert control.rates[64].hits == 0


def test_one_zero_slot_in_one_layer_is_seen_at_once() -> None:
    """The trap for padding: the first token computed with the slot in sight is already wrong."""
    (trap,) = sample("plain", "zero-visible-one", requests=12)
    assert trap.rates[8] == Rate(12, 12)


def test_every_request_shows_each_of_these_faults() -> None:
    for detection in sample("eos", *ALWAYS_SEEN):
        assert detection.rates[24] == Rate(6, 6), f"{detection.fault.name} was missed"


@pytest.mark.parametrize("variant", ["window", "mistral-window"])
def test_a_window_off_by_one_is_seen(variant: str) -> None:
    """Also where only some layers have windows: the prompts keep windowed sums near zero."""
    for detection in sample(variant, "window+1", "window-1", length=150):
        assert detection.rates[24] == Rate(6, 6), f"{detection.fault.name} was missed"


def test_the_first_entry_is_missed_only_where_it_was_in_sight() -> None:
    (dropped,) = sample("window", "first-dropped-one", length=150)
    assert dropped.rates[24] == Rate(6, 6)
    windows = VARIANTS["window"].windows
    assert all(windows[layer] is None for layer in dropped.by_layer)


def test_no_replaced_entry_that_the_rule_can_tell_is_missed() -> None:
    for detection in sample("eos", "entry-stale-all", "value-replaced", requests=12):
        assert detection.missed == 0, f"{detection.fault.name} was missed"
        assert detection.rates[24].hits >= detection.limit.hits > 0


def test_the_limit_is_what_the_entries_say() -> None:
    """Slot 2 of two prompts that differ in nothing but that token, far from every tap."""
    config = VARIANTS["eos"]
    table = vocabulary(config)
    ids = range(4, 260)
    twin = next(
        i
        for i in ids
        if i != 70 and table.signs[i] == table.signs[70] and table.symbols[i] != table.symbols[70]
    )
    far = next(i for i in ids if table.signs[i] != table.signs[70])
    rest = [90] * 200
    prompts = [[1, 5, 70, *rest], [1, 5, twin, *rest], [1, 5, far, *rest]]
    limit = Limit(config, prompts, [[], [], []])
    layers = range(config.layers)
    assert not limit.may_show("entry-stale-all", 0, layers, 2, 0, 24)
    assert limit.may_show("entry-stale-all", 1, layers, 2, 0, 24)
    assert limit.may_show("token-doubled", 0, layers, 2, 0, 24)
    assert not limit.may_show("healthy", 0, layers, 2, 0, 24)
    near = Limit(config, [row[:5] for row in prompts], [[], [], []])
    assert near.may_show("entry-stale-all", 0, layers, 2, 0, 24), "a tap reads it"


def test_there_are_at_least_sixteen_kinds_of_fault() -> None:
    assert len(CACHE_FAULTS) >= 16


def test_a_rate_states_its_uncertainty() -> None:
    """Wilson's interval for 9 of 10, from the literature: 0.596 to 0.982."""
    low, high = Rate(9, 10).interval
    assert low == pytest.approx(0.596, abs=0.001)
    assert high == pytest.approx(0.982, abs=0.001)
    assert Rate(9, 10).requests_for_certainty == 11  # ln(0.0001) / ln(1 - 0.596)
    assert Rate(0, 10).requests_for_certainty is None


@pytest.mark.parametrize("tokens", [1, 40, 200, 900])
def test_a_balanced_prompt_leaves_every_sum_near_zero(tokens: int) -> None:
    config = VARIANTS["eos"]
    prompt = balanced_prompt(config, tokens, random.Random(tokens))
    assert len(prompt) == tokens
    state, _ = Rule(config).read(prompt)
    assert all(abs(total) <= 3 for total in state.doubled_sums)
