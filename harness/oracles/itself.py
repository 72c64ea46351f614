"""The self oracle: what an idle server answers to a request alone holds in company too.

It needs no known model. Two honest runs of one request may still part at a near-tie, where two
tokens are so close that another order of summation swaps them. So it first measures how far the
server's logprobs move by themselves (the same requests alone, alone again, and together) and calls
a difference at a smaller gap a tie flip, at a larger one a divergence. Without logprobs it cannot
tell them apart: then it judges only servers whose answers did not differ while it measured.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from harness.oracles.oracle import Agreement, Expected, Judgement, NotPredictable, Prompt
from harness.oracles.oracle import first_difference as where_differs
from harness.targets.target import TargetUnusable
from harness.transcript import Ending, RequestTranscript
from workloads.workload import Workload, WorkloadRequest

if TYPE_CHECKING:
    from harness.checks.asker import Asker

TOP: Final = 5
# The largest band ever granted, in nat: 2 units in the last place of a bf16 logit between 16 and
# 32 (0.125 each), twice, because the gap is a difference of two logits.
BAND_CAP: Final = 0.5
BAND_FLOOR: Final = 1e-4
_BAND_MARGIN: Final = 2.0
_CALIBRATION_REQUESTS: Final = 6
_CALIBRATION_TOKENS: Final = 24

_COMMON: Final = """
the a of to and in that it is was for on are as with they be at one have this from by hot word but
what some we can out other were all there when up use your how said an each she which do their time
if will way about many then them would write like so these her long make thing see him two has look
more day could go come did my sound no most number who over know water than call first people may
"""


@dataclass(frozen=True, slots=True)
class Band:
    """How far logprobs moved by themselves, in nat, and the gap granted for a tie flip.

    ``alone`` between two solo runs, ``together`` between solo and benign batching; None where the
    server gives no logprobs. ``texts_differed``: answers that differed while measuring.
    """

    alone: float | None
    together: float | None
    texts_differed: int
    compared: int

    @property
    def granted(self) -> float | None:
        """The gap up to which a difference is a tie flip; None where none can be told."""
        measured = [m for m in (self.alone, self.together) if m is not None]
        if not measured:
            return None
        return min(BAND_CAP, max(BAND_FLOOR, _BAND_MARGIN * max(measured)))


class SelfOracle:
    """Answers by asking the server itself, alone, and remembers what it said."""

    name = "self"
    exact = False

    def __init__(self, asker: Asker, words_per_token: float, band: Band, logprobs: bool) -> None:
        self._asker = asker
        self._words_per_token = words_per_token
        self.band = band
        self._logprobs = logprobs
        self._answers: dict[str, RequestTranscript] = {}

    @property
    def description(self) -> str:
        """What it stands on, with the band."""
        granted = self.band.granted
        told = f"ties up to {granted:.2g} nat" if granted is not None else "no logprobs, no ties"
        return (
            f"the server's own answers when idle; {told} (measured {_nat(self.band.alone)} alone, "
            f"{_nat(self.band.together)} together; {self.band.texts_differed} of "
            f"{self.band.compared} texts differed)"
        )

    @property
    def extra_params(self) -> Mapping[str, Any]:
        """What every greedy request carries so that ties can be told."""
        return {"logprobs": TOP} if self._logprobs else {}

    def prompt(self, tokens: int, content: str) -> Prompt:
        """About ``tokens`` tokens of common words; the tokenizer is not known."""
        return Prompt(None, word_text(max(1, round(tokens * self._words_per_token)), content))

    def encode(self, text: str) -> None:
        """Not known."""
        return

    def second_token(self) -> None:
        """Not known."""
        return

    def followers(self, token_ids: Sequence[int]) -> None:
        """Not known."""
        return

    def text(self, token_ids: Sequence[int]) -> str:
        """Raises NotPredictable: the tokenizer is not known."""
        raise NotPredictable("the tokenizer is not known")

    async def expect(self, request: WorkloadRequest) -> Expected:
        """The server's answer to the request alone."""
        answer = await self._alone(request)
        reason = next(iter(answer.first.finish_reasons), "")
        prompt_tokens = answer.usage.prompt_tokens if answer.usage else None
        return Expected(answer.first.token_ids, answer.first.text, reason, prompt_tokens)

    async def judge(
        self,
        request: WorkloadRequest,
        answer: RequestTranscript,
        neighbours: Sequence[WorkloadRequest] = (),
    ) -> Judgement:
        """Equal to the solo answer, or parted from it at a tie, or diverged."""
        return self.compare(await self._alone(request), answer)

    def compare(self, first: RequestTranscript, second: RequestTranscript) -> Judgement:
        """Two answers to one request; ``first`` is the one whose logprobs decide."""
        judgement = compare_answers(first, second, self.band)
        if judgement is None:
            raise NotPredictable("answers differ, and without logprobs a tie cannot be told")
        return judgement

    async def _alone(self, request: WorkloadRequest) -> RequestTranscript:
        if request.params.get("temperature", 1) and request.params.get("seed") is None:
            raise NotPredictable("a sampled answer without a seed")
        solo = replace(
            request, key="alone", due_s=0.0, after=None, cancel_after_tokens=None,
            cancel_after_s=None, stream=True,
        )  # fmt: skip
        digest = Workload((solo,)).sha256
        if digest not in self._answers:
            answer = await self._asker.one(solo, "self oracle: alone")
            if answer.ending is not Ending.COMPLETE:
                raise NotPredictable(f"alone the request ended in {answer.ending.value}")
            self._answers[digest] = answer
        return self._answers[digest]


def compare_answers(
    first: RequestTranscript, second: RequestTranscript, band: Band
) -> Judgement | None:
    """How ``second`` compares with ``first``; None where a difference cannot be judged."""
    right, given = first.first.text, second.first.text
    if second.ending is Ending.CANCELLED:
        right = right[: len(given)]
    difference = where_differs(right, given)
    if difference is None:
        return Judgement(Agreement.EXACT, right, given)
    granted = band.granted
    if granted is None:
        if band.texts_differed:
            return None
        return Judgement(Agreement.DIVERGENCE, right, given, difference)
    gap = gap_at_first_difference(first, second)
    flipped = gap is not None and gap <= granted
    agreement = Agreement.TIE_FLIP if flipped else Agreement.DIVERGENCE
    return Judgement(agreement, right, given, difference, gap)


def gap_at_first_difference(first: RequestTranscript, second: RequestTranscript) -> float | None:
    """How much likelier the first answer's token was than the second's, where they part, in nat.

    By the first answer's own top logprobs. A token that is not among them is at least as far as
    the last of them. None where the logprobs do not show where the answers part.
    """
    mine, other = (_tops(answer) for answer in (first, second))
    for right, given in zip(mine, other, strict=False):
        if not right or not given:
            return None
        best, taken = (max(top, key=lambda name: top[name]) for top in (right, given))
        if best != taken:
            return right[best] - right.get(taken, min(right.values()) - BAND_CAP)
    return None


def _tops(answer: RequestTranscript) -> list[Mapping[str, float]]:
    return [top for chunk in answer.first.chunks for top in chunk.top_logprobs or ()]


def word_text(words: int, content: str) -> str:
    """Common words drawn by ``content``."""
    return " ".join(random.Random(content).choices(_COMMON.split(), k=words))


async def calibrated_self_oracle(asker: Asker) -> SelfOracle:
    """Measure the words per token and the band, on an idle server.

    Raises TargetUnusable when requests fail even alone.
    """
    sample = word_text(64, "calibration")
    first = await asker.one(_question("q", sample, {}))
    if first.ending is not Ending.COMPLETE:
        raise TargetUnusable(f"{asker.target.name} fails when idle: {first.error}")
    ratio = 64 / first.usage.prompt_tokens if first.usage and first.usage.prompt_tokens else 1.0
    with_logprobs = await asker.one(_question("q", sample, {"logprobs": TOP}))
    logprobs = with_logprobs.ending is Ending.COMPLETE and bool(_tops(with_logprobs))
    band = await _measured_band(asker, ratio, {"logprobs": TOP} if logprobs else {})
    return SelfOracle(asker, ratio, band, logprobs)


def _question(key: str, text: str, extra: Mapping[str, Any]) -> WorkloadRequest:
    params = {"max_tokens": _CALIBRATION_TOKENS, "temperature": 0, **extra}
    return WorkloadRequest(key, prompt_text=text, params=params)


async def _measured_band(asker: Asker, ratio: float, extra: Mapping[str, Any]) -> Band:
    """Alone, alone again, and all together."""
    requests = [
        _question(f"q{i}", word_text(max(2, round(ratio * (8 + 17 * i))), f"band {i}"), extra)
        for i in range(_CALIBRATION_REQUESTS)
    ]
    alone = [await asker.one(r, "calibration") for r in requests]
    again = [await asker.one(r, "calibration") for r in requests]
    workload = asker.prepared(Workload(tuple(requests), origin="calibration"))
    transcript = await asker.run(workload)
    together = [transcript[r.key] for r in requests]
    pairs = [*zip(alone, again, strict=True), *zip(alone, together, strict=True)]
    half = len(requests)
    return Band(
        _largest_move(pairs[:half]) if extra else None,
        _largest_move(pairs[half:]) if extra else None,
        sum(a.first.text != b.first.text for a, b in pairs),
        len(pairs),
    )


def _largest_move(pairs: Sequence[tuple[RequestTranscript, RequestTranscript]]) -> float:
    """The largest change of the best token's logprob up to the first difference."""
    largest = 0.0
    for first, second in pairs:
        for right, given in zip(_tops(first), _tops(second), strict=False):
            if not right or not given:
                break
            best = max(right, key=lambda name: right[name])
            if best in given:
                largest = max(largest, abs(right[best] - given[best]))
            if max(given, key=lambda name: given[name]) != best:
                break
    return largest


def _nat(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2g} nat"
