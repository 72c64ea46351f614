"""The reference oracle on answers cut by a stop string, and its guess at what went wrong."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.checks.cache import edited
from harness.oracles.oracle import Agreement
from harness.oracles.reference import ReferenceOracle
from harness.oracles.reference_model import ReferenceModel
from harness.oracles.reference_prompts import ReferencePrompts
from harness.oracles.spelling import Speller
from harness.transcript import ChoiceTranscript, Ending, RequestTranscript, TokenChunk
from tests.checks.rounding_server import write_checkpoint
from workloads.workload import WorkloadRequest

PROMPTS = ((66, 261), (144, 300), (70, 99, 120))
MOST = 16


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> ReferenceOracle:
    folder = write_checkpoint(tmp_path_factory.mktemp("tiny") / "model", spread=0.15)
    model = ReferenceModel.load(folder)
    prompts = ReferencePrompts(model.codec, model.model.vocab_size)
    return ReferenceOracle(cast(Any, None), model, prompts, "a tiny model")


def _answer(
    text: str, ids: tuple[int, ...] | None = None, reason: str = "stop"
) -> RequestTranscript:
    choice = ChoiceTranscript([TokenChunk(0.0, text, ids)], [reason])
    return RequestTranscript("a", Ending.COMPLETE, 0.0, choices={0: choice})


def _judged(oracle: ReferenceOracle, prompt: tuple[int, ...], stop: str, text: str) -> Agreement:
    params = {"max_tokens": MOST, "temperature": 0, "stop": [stop]}
    request = WorkloadRequest("a", prompt_ids=prompt, params=params)
    return asyncio.run(oracle.judge(request, _answer(text))).agreement


def _said(oracle: ReferenceOracle, prompt: tuple[int, ...]) -> str:
    ids = asyncio.run(oracle.model.greedy(prompt, MOST))
    return Speller(oracle.model, prompt, 0.0).text(ids)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_an_answer_cut_before_its_stop_string_is_exact(
    oracle: ReferenceOracle, prompt: tuple[int, ...]
) -> None:
    said = _said(oracle, prompt)
    assert len(said) > MOST, "words of several letters, so that stop strings lie within tokens"
    for start in range(len(said) - 2):
        for length in (1, 3):
            stop = said[start : start + length]
            cut = said[: said.index(stop)]
            assert _judged(oracle, prompt, stop, cut) is Agreement.EXACT, (stop, cut, said)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_an_answer_cut_elsewhere_is_not(oracle: ReferenceOracle, prompt: tuple[int, ...]) -> None:
    said = _said(oracle, prompt)
    stop = said[6:9]
    right = said.index(stop)
    for place in {right - 1, right + 1, right + 3} & {*range(len(said))}:
        assert _judged(oracle, prompt, stop, said[:place]) is Agreement.DIVERGENCE, place


def _guess(oracle: ReferenceOracle, ids: tuple[int, ...], *neighbours: tuple[int, ...]) -> str:
    params = {"max_tokens": MOST, "temperature": 0}
    first, *others = (
        WorkloadRequest(f"r{i}", prompt_ids=prompt, params=params)
        for i, prompt in enumerate((PROMPTS[0], *neighbours))
    )
    judged = asyncio.run(oracle.judge(first, _answer("?", ids, "length"), others))
    assert judged.agreement is Agreement.DIVERGENCE
    return judged.guess or ""


def test_the_answer_to_another_prompt_is_told(oracle: ReferenceOracle) -> None:
    foreign = asyncio.run(oracle.model.greedy(PROMPTS[1], MOST))
    assert "another request's prompt (neighbour 1)" in _guess(
        oracle, foreign, PROMPTS[2], PROMPTS[1]
    )


def test_a_slip_in_the_context_is_told(oracle: ReferenceOracle) -> None:
    right = asyncio.run(oracle.model.greedy(PROMPTS[0], MOST))
    context = (*PROMPTS[0], *right[:5])
    slipped = asyncio.run(oracle.model.greedy((*context, context[-1]), MOST - 5))
    assert "the last token is there twice" in _guess(oracle, (*right[:5], *slipped))


def test_an_answer_cut_short_is_told(oracle: ReferenceOracle) -> None:
    right = asyncio.run(oracle.model.greedy(PROMPTS[0], MOST))
    assert _guess(oracle, right[:5]) == f"the answer stops after 5 of {MOST} tokens"


def test_text_alone_is_not_explained(oracle: ReferenceOracle) -> None:
    request = WorkloadRequest(
        "a", prompt_ids=PROMPTS[0], params={"max_tokens": MOST, "temperature": 0}
    )
    judged = asyncio.run(oracle.judge(request, _answer("no such words", reason="length")))
    assert judged.agreement is Agreement.DIVERGENCE
    assert judged.guess is None


@pytest.mark.parametrize("place", [0, 5, 15, 31])
def test_a_near_miss_differs_in_one_token_and_no_more(oracle: ReferenceOracle, place: int) -> None:
    asked = SimpleNamespace(session=SimpleNamespace(oracle=oracle), prompt=oracle.prompt)
    prompt = oracle.prompt(40, "original")
    twin = edited(cast(Any, asked), prompt, place, "twin")
    assert prompt.ids is not None
    assert twin.ids is not None
    assert twin.text is not None
    assert [i for i, (a, b) in enumerate(zip(prompt.ids, twin.ids, strict=True)) if a != b] == [
        place
    ]
    assert oracle.encode(twin.text) == twin.ids
