"""The sampler against its definition. The engine and ``solo`` share it, so that their agreement
cannot see a mistake in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats

from reference_engine.request import Request, SamplingParams
from reference_engine.sampler import Sampler

VOCAB = 8
END = 7
PROMPT = (1, 2, 3)
P_VALUE = 1e-4  # seeds are fixed: this never changes from run to run


@dataclass(frozen=True)
class Live:
    """What the sampler is told of a request."""

    request: Request
    seed: int = 5
    end_ids: frozenset[int] = frozenset({END})


def live(seed: int = 5, **params: object) -> Live:
    return Live(Request("r", PROMPT, SamplingParams(**params)), seed)  # type: ignore[arg-type]


def by_position(steps: int) -> list[int]:
    row = torch.zeros(VOCAB)
    return [Sampler().choose(row, live(temperature=1.0), 0, (4,) * n) for n in range(steps)]


def by_choice(steps: int) -> list[int]:
    row = torch.zeros(VOCAB)
    return [Sampler().choose(row, live(temperature=1.0), n, ()) for n in range(steps)]


def by_seed(steps: int) -> list[int]:
    row = torch.zeros(VOCAB)
    return [Sampler().choose(row, live(n, temperature=1.0), 0, ()) for n in range(steps)]


@pytest.mark.parametrize("tokens", [by_position, by_choice, by_seed])
def test_every_position_choice_and_seed_draws_anew(tokens: Callable[[int], list[int]]) -> None:
    """Flat logits: all tokens equally often, and pairs of successive ones too."""
    drawn = np.array(tokens(4_000))
    assert stats.chisquare(np.bincount(drawn, minlength=VOCAB)).pvalue > P_VALUE
    pairs = drawn[:-1:2] * VOCAB + drawn[1::2]
    assert stats.chisquare(np.bincount(pairs, minlength=VOCAB**2)).pvalue > P_VALUE


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_min_tokens_holds_the_end_back_for_so_many_tokens_and_no_more(temperature: float) -> None:
    row = torch.zeros(VOCAB)
    row[END] = 50.0
    asked = live(temperature=temperature, min_tokens=3)
    ends = [Sampler().choose(row, asked, 0, (4,) * n) == END for n in range(5)]
    assert ends == [False, False, False, True, True], "min_tokens=3: the fourth may end the text"


def test_the_repetition_penalty_lowers_what_was_seen_on_either_side_of_zero() -> None:
    row = torch.tensor([2.0, -2.0, 2.0, -2.0, 2.0, 0.0, 1.0, 1.0])
    params = SamplingParams(repetition_penalty=2.0)
    penalised = Sampler().penalised(row, params, prompt_ids=(0, 1), output_ids=(2,))
    assert penalised.tolist() == [1.0, -4.0, 1.0, -2.0, 2.0, 0.0, 1.0, 1.0]


def test_a_tie_goes_to_the_lowest_id() -> None:
    assert Sampler().choose(torch.ones(VOCAB), live(temperature=0.0), 0, ()) == 0
