"""The interface of an oracle: the expected answer, and the judgement of a given one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from harness.transcript import RequestTranscript
from workloads.workload import WorkloadRequest

if TYPE_CHECKING:
    from harness.oracles.flips import CalmRate


class NotPredictable(Exception):
    """The oracle cannot say what the answer to this request must be."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The same prompt as token ids and as text; None where the oracle does not know one of them."""

    ids: tuple[int, ...] | None
    text: str | None


@dataclass(frozen=True, slots=True)
class Expected:
    """The right answer to one request. ``token_ids`` is None where only the text is known."""

    token_ids: tuple[int, ...] | None
    text: str
    finish_reason: str
    prompt_tokens: int | None = None


class Agreement(StrEnum):
    """How an answer compares with the right one."""

    EXACT = "exact"
    TIE_FLIP = "tie-flip"
    DIVERGENCE = "divergence"


@dataclass(frozen=True, slots=True)
class Judgement:
    """An answer compared. ``first_difference`` is a token index, or a character of a text.

    ``gap`` is the logit or logprob distance to the right token where the oracle measures one.
    ``trials`` are the tokens that were compared: what came before each, hashed, and whether it
    flipped at a near-tie.
    ``explain`` guesses at the cause; it may take longer than the judgement itself, so it is called
    only for a failure that is shown to somebody.
    """

    agreement: Agreement
    expected: Sequence[int] | str | None = None
    actual: Sequence[int] | str | None = None
    first_difference: int | None = None
    gap: float | None = None
    trials: Sequence[tuple[int, bool]] = ()
    explain: Callable[[], str | None] | None = field(default=None, compare=False, repr=False)

    @property
    def guess(self) -> str | None:
        """The likely cause, None where there is no idea."""
        return self.explain() if self.explain is not None else None


class Oracle(Protocol):
    """Knows, or finds out, what a request's answer must be."""

    @property
    def name(self) -> str:
        """``probe``, ``reference`` or ``self``."""

    @property
    def exact(self) -> bool:
        """Whether a right answer is one answer: no ties, no tolerance."""

    @property
    def bos_tokens(self) -> int:
        """How many tokens its prompts begin with that are no text of theirs: 0 or 1."""

    @property
    def calm(self) -> CalmRate | None:
        """How often near-ties flip on the calm server; None where none can, or it is unknown."""

    @property
    def logprob_band(self) -> float | None:
        """How far apart two honest logprobs may be, in nat; None where it was not measured."""

    @property
    def extra_params(self) -> Mapping[str, Any]:
        """What greedy requests must carry so that this oracle can judge them."""

    @property
    def description(self) -> str:
        """What it stands on, in one sentence for the report."""

    def prompt(self, tokens: int, content: str) -> Prompt:
        """A prompt of ``tokens`` tokens; ``content`` is any text that decides which ones."""

    def encode(self, text: str) -> tuple[int, ...] | None:
        """The prompt's token ids, or None where the oracle does not know the tokenizer."""

    def second_token(self) -> tuple[int, str] | None:
        """A token that is second best at every position, with its text; None if none is known."""

    async def wrong_followers(
        self, token_ids: Sequence[int], given: Sequence[int]
    ) -> list[int] | None:
        """Places after which ``given`` does not have the likeliest token, near-ties aside.

        ``given[i]`` is said to follow ``token_ids[:i + 1]``. None where the oracle cannot know.
        """

    def scores(
        self, request: WorkloadRequest, token_ids: Sequence[int]
    ) -> Awaitable[list[float]] | None:
        """The logprob of each answer token after those before it; None where it cannot know."""

    def text(self, token_ids: Sequence[int]) -> str:
        """The text of output tokens. Raises NotPredictable where the tokenizer is unknown."""

    async def expect(self, request: WorkloadRequest) -> Expected:
        """The answer of a healthy server. Raises NotPredictable where there is no one answer."""

    async def judge(
        self,
        request: WorkloadRequest,
        answer: RequestTranscript,
        neighbours: Sequence[WorkloadRequest] = (),
    ) -> Judgement:
        """Compare what arrived for choice 0, whole or, when the client hung up, so far."""

    async def compare(
        self,
        first: RequestTranscript,
        second: RequestTranscript,
        request: WorkloadRequest | None = None,
    ) -> Judgement:
        """Compare two answers to the same request, neither of which is known to be right."""


def first_difference(expected: Sequence[int] | str, actual: Sequence[int] | str) -> int | None:
    """The index of the first element that differs or is missing; None if they are equal."""
    for index, (right, given) in enumerate(zip(expected, actual, strict=False)):
        if right != given:
            return index
    if len(expected) != len(actual):
        return min(len(expected), len(actual))
    return None
