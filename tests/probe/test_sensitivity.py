"""A sample of the sensitivity measurement: what must always be seen, and what must not."""

from __future__ import annotations

import random

import pytest

from reference_engine.probe import VARIANTS, Rule
from reference_engine.probe.sensitivity import balanced_prompt
from reference_engine.probe.sensitivity.fault_kinds import CACHE_FAULTS, CONTROLS, kinds_for
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


def test_a_window_off_by_one_is_seen() -> None:
    for detection in sample("mistral-window", "window+1", "window-1"):
        assert detection.rates[24] == Rate(6, 6), f"{detection.fault.name} was missed"


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
