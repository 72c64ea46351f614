"""The reference oracle on answers that a stop string cut, wherever in a token it lies."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

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


def _answer(text: str) -> RequestTranscript:
    choice = ChoiceTranscript([TokenChunk(0.0, text)], ["stop"])
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
