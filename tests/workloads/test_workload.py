"""The workload document, recipes and presets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from workloads.presets import PRESETS, load_preset
from workloads.prompts import TokenAlphabet, Words
from workloads.recipe import Recipe
from workloads.strategies import workloads
from workloads.workload import AfterTokens, Workload, WorkloadRequest

ALPHABET = TokenAlphabet(tuple(range(10, 74)), bos_id=1)


@settings(max_examples=25)
@given(workloads(ALPHABET, cancels=True))
def test_a_workload_survives_json(workload: Workload):
    text = json.dumps(workload.to_json())
    again = Workload.from_json(json.loads(text))
    assert again == workload
    assert again.sha256 == workload.sha256


def test_headers_of_a_request_survive_json():
    workload = Workload((WorkloadRequest("a", prompt_ids=(1,), headers={"X-Request-Id": "twin"}),))
    assert Workload.from_json(json.loads(json.dumps(workload.to_json()))) == workload


@settings(max_examples=25)
@given(workloads(ALPHABET, cancels=True))
def test_drawn_workloads_keep_their_promises(workload: Workload):
    keys = [r.key for r in workload.requests]
    for number, request in enumerate(workload.requests):
        assert request.prompt_ids is not None
        assert request.prompt_ids[0] == ALPHABET.bos_id
        assert set(request.prompt_ids[1:]) <= set(ALPHABET.ids)
        if request.after is not None:
            assert keys.index(request.after.key) < number, "waits only for an earlier request"
        if request.cancel_after_tokens is not None:
            assert 0 <= request.cancel_after_tokens <= request.params["max_tokens"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": "x"}, "not a workload"),
        ({"requests": [{"key": "a"}]}, r"requests\[0\].*exactly one of"),
        ({"requests": [{"key": "a", "prompt_ids": [1], "colour": 1}]}, r"requests\[0\].*colour"),
        ({"requests": [{"key": "a", "prompt_ids": [1], "after_end": "b"}]}, "no such key"),
        (
            {"requests": [{"key": "a", "prompt_ids": [1], "headers": ["x"]}]},
            r"requests\[0\].*headers",
        ),
        ({"concurrency": 0}, "at least 1"),
    ],
)
def test_a_bad_document_is_refused_in_one_sentence(change: dict[str, object], sentence: str):
    document = {**Workload(()).to_json(), **change}
    with pytest.raises(ValueError, match=sentence):
        Workload.from_json(document)


def test_a_trigger_must_name_a_request():
    lonely = WorkloadRequest("a", prompt_ids=(1,), after=AfterTokens("b", 1))
    with pytest.raises(ValueError, match="no such key"):
        Workload((lonely,))


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_builds_the_same_workload_twice_and_another_for_another_seed(name: str):
    recipe = load_preset(name).resized(requests=12, concurrency=None)
    first = recipe.build(ALPHABET, seed=3)
    assert first.sha256 == recipe.build(ALPHABET, seed=3).sha256
    assert first.sha256 != recipe.build(ALPHABET, seed=4).sha256
    assert len(first.requests) == 12
    assert recipe.title
    due = [r.due_s for r in first.requests if r.after_end is None]
    assert due == sorted(due)


def test_a_longer_run_begins_with_the_same_requests():
    short = load_preset("ragged").resized(requests=10, concurrency=None).build(ALPHABET, 0)
    long = load_preset("ragged").resized(requests=20, concurrency=None).build(ALPHABET, 0)
    assert long.requests[:10] == short.requests


RECIPE = """
title = "t"
requests = 30
cancel_share = 0.5
shared_prefix_tokens = 8
prefix_groups = 2
[prompt_tokens]
kind = "uniform"
low = 4
high = 20
[output_tokens]
kind = "fixed"
tokens = 9
"""


def test_shared_prefixes_and_cancels():
    workload = Recipe.from_toml("mine", RECIPE).build(ALPHABET, seed=0)
    prompts = [r.prompt_ids for r in workload.requests if r.prompt_ids]
    prefixes = {p[:8] for p in prompts if len(p) >= 8}
    assert len(prefixes) == 2
    assert len({p[8:] for p in prompts if len(p) > 10}) > 10
    cancels = [r.cancel_after_tokens for r in workload.requests if r.cancels]
    assert 5 < len(cancels) < 25
    assert all(c is not None and 0 <= c < 9 for c in cancels)


def test_word_prompts_have_one_word_for_each_token_asked_for():
    workload = Recipe.from_toml("mine", RECIPE).build(Words(), seed=0)
    for request in workload.requests:
        assert request.prompt_text is not None
        assert 4 <= len(request.prompt_text.split()) <= 20


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("title =", "not TOML"),
        ('colour = "red"', "unknown field colour"),
        ('title = "t"\nrequests = 1', "prompt_tokens is missing"),
        (RECIPE.replace("uniform", "weibull"), "lengths of kind 'weibull'"),
        (RECIPE + '[arrivals]\nkind = "poisson"\nrate = -1', "rate is -1"),
        (RECIPE + '[arrivals]\nkind = "tidal"', "known: at-once, constant"),
    ],
)
def test_a_bad_recipe_is_refused_in_one_sentence(text: str, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        Recipe.from_toml("mine", text)


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"known: .*ragged"):
        load_preset("nonesuch")
