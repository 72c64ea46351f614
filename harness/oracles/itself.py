"""The self oracle: what an idle server answers to a request alone holds in company too.

It needs no known model. Two honest runs of one request may still part at a near-tie, where two
tokens are so close that another order of summation swaps them. So it first measures how far the
server's logprobs move by themselves (the same requests alone, alone again, and together) and calls
a difference at a smaller gap a tie flip, at a larger one a divergence; how many flips are too many
is decided against the rate of that calm batch. Without logprobs it cannot tell them apart: then it
judges only servers whose answers did not differ while it measured.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from harness.oracles.band import Band, compare_answers, moves, noise, tops
from harness.oracles.flips import CalmRate
from harness.oracles.idle import IdleAnswers, as_expected
from harness.oracles.oracle import Agreement, Expected, Judgement, NotPredictable, Prompt
from harness.targets.target import TargetUnusable
from harness.transcript import Ending, RequestTranscript
from workloads.workload import Workload, WorkloadRequest

if TYPE_CHECKING:
    from harness.checks.asker import Asker

TOP: Final = 5
_CALIBRATION_REQUESTS: Final = 8
_CALIBRATION_TOKENS: Final = 32

_COMMON: Final = """
the a of to and in that it is was for on are as with they be at one have this from by hot word but
what some we can out other were all there when up use your how said an each she which do their time
if will way about many then them would write like so these her long make thing see him two has look
more day could go come did my sound no most number who over know water than call first people may
"""


class SelfOracle:
    """Answers by asking the server itself, alone, and remembers what it said."""

    name = "self"
    exact = False
    bos_tokens = 0

    def __init__(
        self,
        asker: Asker,
        words_per_token: float,
        band: Band,
        logprobs: bool,
        calm: CalmRate | None = None,
        note: str = "",
    ) -> None:
        self._words_per_token = words_per_token
        self.band = band
        self.calm = calm
        self.extra_params: Mapping[str, int] = {"logprobs": TOP} if logprobs else {}
        self._idle = IdleAnswers(asker, self.extra_params)
        self._note = note

    @property
    def logprob_band(self) -> float | None:
        """How far an honest logprob may be from another, in nat; None where not measured."""
        return self.band.granted

    @property
    def description(self) -> str:
        """What it stands on, with the band."""
        granted = self.band.granted
        told = f"ties up to {granted:.2g} nat" if granted is not None else "no logprobs, no ties"
        calm = f"; {self.calm}" if self.calm is not None else ""
        return (
            f"the server's own answers when idle; {told} (measured {_nat(self.band.alone)} alone, "
            f"{_nat(self.band.together)} together; {self.band.texts_differed} of "
            f"{self.band.compared} texts differed{calm}){self._note}"
        )

    def prompt(self, tokens: int, content: str) -> Prompt:
        """About ``tokens`` tokens of common words; the tokenizer is not known."""
        return Prompt(None, word_text(max(1, round(tokens * self._words_per_token)), content))

    def encode(self, text: str) -> None:
        """Not known."""
        return

    def second_token(self) -> None:
        """Not known."""
        return

    async def wrong_followers(self, token_ids: Sequence[int], given: Sequence[int]) -> None:
        """Not known."""
        return

    def scores(self, request: WorkloadRequest, token_ids: Sequence[int]) -> None:
        """Not known."""
        return

    def text(self, token_ids: Sequence[int]) -> str:
        """Raises NotPredictable: the tokenizer is not known."""
        raise NotPredictable("the tokenizer is not known")

    async def expect(self, request: WorkloadRequest) -> Expected:
        """The server's answer to the request alone."""
        return as_expected(await self._idle.to(request))

    async def judge(
        self,
        request: WorkloadRequest,
        answer: RequestTranscript,
        neighbours: Sequence[WorkloadRequest] = (),
    ) -> Judgement:
        """Equal to the solo answer, or parted from it at a tie, or diverged."""
        return self._compared(await self._idle.to(request), answer)

    async def compare(
        self,
        first: RequestTranscript,
        second: RequestTranscript,
        request: WorkloadRequest | None = None,
    ) -> Judgement:
        """Two answers to one request; ``first`` is the one whose logprobs decide.

        Where it has too few of them, both are held to the idle answer, which has enough.
        """
        judgement = self._compared(first, second)
        if judgement.agreement is not Agreement.DIVERGENCE or request is None:
            return judgement
        idle = await self._idle.to(request)
        both = [self._compared(idle, answer) for answer in (first, second)]
        wrong = [j for j in both if j.agreement is Agreement.DIVERGENCE]
        return wrong[0] if wrong else both[-1]

    def _compared(self, first: RequestTranscript, second: RequestTranscript) -> Judgement:
        judgement = compare_answers(first, second, self.band)
        if judgement is None:
            raise NotPredictable("answers differ, and without logprobs a tie cannot be told")
        return judgement


def word_text(words: int, content: str) -> str:
    """Common words drawn by ``content``."""
    return " ".join(random.Random(content).choices(_COMMON.split(), k=words))


async def calibrated_self_oracle(asker: Asker, note: str = "") -> SelfOracle:
    """Measure the words per token, the band and the calm rate of tie flips, on an idle server.

    ``note`` is added to the description. Raises TargetUnusable when requests fail even alone.
    """
    sample = word_text(64, "calibration")
    first = await asker.one(_question("q", sample, {}))
    if first.ending is not Ending.COMPLETE:
        raise TargetUnusable(f"{asker.target.name} fails when idle: {first.error}")
    ratio = 64 / first.usage.prompt_tokens if first.usage and first.usage.prompt_tokens else 1.0
    with_logprobs = await asker.one(_question("q", sample, {"logprobs": TOP}))
    logprobs = with_logprobs.ending is Ending.COMPLETE and bool(tops(with_logprobs))
    requests = [
        _question(
            f"q{i}",
            word_text(max(2, round(ratio * (8 + 17 * i))), f"band {i}"),
            {"logprobs": TOP} if logprobs else {},
        )
        for i in range(_CALIBRATION_REQUESTS)
    ]
    alone, together = await _calm_runs(asker, requests)
    band = measured_band(alone, together, logprobs)
    calm = _calm_rate(together, band) if logprobs else None
    return SelfOracle(asker, ratio, band, logprobs, calm, note)


def _question(key: str, text: str, extra: Mapping[str, Any]) -> WorkloadRequest:
    params = {"max_tokens": _CALIBRATION_TOKENS, "temperature": 0, **extra}
    return WorkloadRequest(key, prompt_text=text, params=params)


_Pairs = list[tuple[RequestTranscript, RequestTranscript]]


async def _calm_runs(asker: Asker, requests: Sequence[WorkloadRequest]) -> tuple[_Pairs, _Pairs]:
    """Each request alone and alone again; and alone and all together."""
    alone = [await asker.one(r, "calibration") for r in requests]
    again = [await asker.one(r, "calibration") for r in requests]
    workload = asker.prepared(Workload(tuple(requests), origin="calibration"))
    transcript = await asker.run(workload)
    together = [transcript[r.key] for r in requests]
    return [*zip(alone, again, strict=True)], [*zip(alone, together, strict=True)]


def measured_band(alone: _Pairs, together: _Pairs, logprobs: bool) -> Band:
    """How far the logprobs moved in either kind of pair, and how many texts differed."""
    pairs = [*alone, *together]
    return Band(
        noise(moves(alone)) if logprobs else None,
        noise(moves(together)) if logprobs else None,
        sum(a.first.text != b.first.text for a, b in pairs),
        len(pairs),
    )


def _calm_rate(together: _Pairs, band: Band) -> CalmRate | None:
    """Tie flips in the calm batch, by the tokens that were compared; None if nothing was."""
    flips = tokens = 0
    for first, second in together:
        judgement = compare_answers(first, second, band)
        if judgement is not None:
            flips += judgement.agreement is Agreement.TIE_FLIP
            tokens += len(judgement.trials)
    return CalmRate(flips, tokens) if tokens else None


def _nat(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2g} nat"
