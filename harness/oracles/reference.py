"""The reference oracle: our exact engine, on the same checkpoint, judges each token by itself.

Each token that the server chose is scored after the server's *own* prefix (teacher forcing), so one
near-tie does not put all that follows in the wrong. A token that is the likeliest is exact; one
that is behind it by no more than the band is a tie flip; one further behind is a divergence. The
band is measured on the idle server (`reference_calibration`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.oracles.band import Band
from harness.oracles.diagnosis import diagnose
from harness.oracles.flips import CalmRate
from harness.oracles.idle import IdleAnswers, as_expected
from harness.oracles.oracle import Agreement, Expected, Judgement, NotPredictable, Prompt
from harness.oracles.reference_model import Ids, ReferenceModel
from harness.oracles.reference_prompts import ReferencePrompts
from harness.oracles.spelling import REPLACEMENT, Speller
from harness.transcript import Ending, RequestTranscript
from workloads.workload import WorkloadRequest

if TYPE_CHECKING:
    from harness.checks.asker import Asker

# Parameters that change which token wins; their exact meaning differs from server to server.
_STEERING: Final = ("logit_bias", "repetition_penalty", "presence_penalty", "frequency_penalty")

_GUESSING_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Forced:
    """An answer's tokens and how far each is behind the likeliest one, in nat.

    ``likeliest`` are the model's choices at the same places. ``wrong_at`` is the place of a fault
    that no token shows: an answer that ends where it should not.
    """

    ids: Ids
    likeliest: Ids
    gaps: tuple[float, ...]
    wrong_at: int | None = None


class ReferenceOracle:
    """Judges by one checkpoint on our own engine, and by what the idle server says itself."""

    name = "reference"
    exact = False
    extra_params: Mapping[str, Any] = {}

    def __init__(
        self, asker: Asker, model: ReferenceModel, prompts: ReferencePrompts, source: str
    ) -> None:
        self.model = model
        self.prompts = prompts
        self.bos_tokens = prompts.bos_tokens
        self.band = Band(None, None, 0, 0)
        self.calm: CalmRate | None = None
        self._source = source
        self._idle = IdleAnswers(asker)

    @property
    def granted(self) -> float:
        """The gap up to which a token is a near-tie, in nat."""
        return self.band.granted or 0.0

    @property
    def logprob_band(self) -> float | None:
        """How far an honest logprob may be from another, in nat; None where none was measured."""
        return self.granted if self.band.alone is not None else None

    @property
    def description(self) -> str:
        """What it stands on, with the band."""
        band = self.band
        alone = "unknown" if band.alone is None else f"{band.alone:.2g} nat"
        return (
            f"{self._source} on our exact engine, each token after the server's own prefix; ties "
            f"up to {self.granted:.2g} nat (measured on the idle server: {alone} from itself, "
            f"{band.reference or 0:.2g} nat from ours; {self.calm})"
        )

    def prompt(self, tokens: int, content: str) -> Prompt:
        """Exactly ``tokens`` tokens of words that are one token each."""
        return self.prompts.prompt(tokens, content)

    def encode(self, text: str) -> Ids:
        """The prompt's token ids, as the server counts them."""
        return self.prompts.encode(text)

    def second_token(self) -> None:
        """A trained model has no token that is second best everywhere."""
        return

    async def wrong_followers(self, token_ids: Sequence[int], given: Sequence[int]) -> list[int]:
        """Places after which ``given`` has a token that is no near-tie of the likeliest."""
        ids = tuple(token_ids)
        given_ids = tuple(given)
        scores = await self.model.forced(ids[:1], ids[1:])
        doubtful = [i for i, token in enumerate(given_ids) if scores[i].best() != token]
        wrong = []
        for place in doubtful:
            token, known = given_ids[place], scores[place]
            if known.gap(token) <= self.granted and not known.knows(token):
                known, _ = await self.model.forced(ids[: place + 1], (token,))
            if known.gap(token) > self.granted:
                wrong.append(place)
        return wrong

    def scores(self, request: WorkloadRequest, token_ids: Sequence[int]) -> Awaitable[list[float]]:
        """The logprob of each answer token after the prompt and those before it."""

        async def scored() -> list[float]:
            output = tuple(token_ids)
            rows = await self.model.forced(self.prompt_ids(request), output)
            return [row.logprobs[t] for row, t in zip(rows, output, strict=False)]

        return scored()

    def text(self, token_ids: Sequence[int]) -> str:
        """The text of tokens, special ones left out."""
        return self.model.codec.decode(token_ids)

    def prompt_ids(self, request: WorkloadRequest) -> Ids:
        """The token ids of the request's prompt. Raises NotPredictable for chat messages."""
        if request.prompt_ids is not None:
            return tuple(request.prompt_ids)
        if request.prompt_text is None:
            raise NotPredictable("chat messages are judged by the chat template's own check")
        return self.encode(request.prompt_text)

    async def expect(self, request: WorkloadRequest) -> Expected:
        """The server's own solo answer where the model agrees to it, else the model's.

        A healthy server may flip a tie, and its answers then go on from there.
        """
        prompt = self.prompt_ids(request)
        answer = await self._idle.to(request)
        if (await self.judge(request, answer)).agreement is not Agreement.DIVERGENCE:
            own = as_expected(answer)
            return Expected(own.token_ids, own.text, own.finish_reason, len(prompt))
        params = request.params
        ends = frozenset[int]() if params.get("ignore_eos") else self.model.model.eos_ids
        least, most = int(params.get("min_tokens") or 0), int(params["max_tokens"])
        ids = await self.model.greedy(prompt, most, ends=ends, min_tokens=least)
        reason = "stop" if ids and ids[-1] in ends else "length"
        text = Speller(self.model, prompt, self.granted).text(ids)
        return Expected(ids, text, reason, len(prompt))

    async def judge(
        self,
        request: WorkloadRequest,
        answer: RequestTranscript,
        neighbours: Sequence[WorkloadRequest] = (),
    ) -> Judgement:
        """Each token exact, a tie flip or a divergence; and an end where there may be one."""
        forced = await self.forced(request, answer)
        prompt = self.prompt_ids(request)
        place = next((i for i, gap in enumerate(forced.gaps) if gap > self.granted), None)
        judged = len(forced.gaps) if place is None else place
        trials = _trials(prompt, forced, judged)
        if place is None and forced.wrong_at is None:
            flips = [gap for gap in forced.gaps if gap > 0]
            agreement = Agreement.TIE_FLIP if flips else Agreement.EXACT
            worst = max(flips, default=None)
            first = next((i for i, gap in enumerate(forced.gaps) if gap > 0), None)
            return Judgement(agreement, forced.likeliest, forced.ids, first, worst, trials=trials)
        at = place if place is not None else forced.wrong_at
        gap = forced.gaps[place] if place is not None else None

        def explain() -> str | None:
            if answer.first.token_ids != forced.ids:
                return None  # the tokens that were wrong are not known
            return self._guess(request, forced.ids, at or 0, neighbours)

        if answer.first.token_ids is not None:
            return Judgement(
                Agreement.DIVERGENCE, forced.likeliest, forced.ids, at, gap, trials, explain
            )
        given, said = answer.first.text, len(self.text(forced.ids))
        right = given[:said] + await self._going_on(prompt, forced.ids, request)
        return Judgement(Agreement.DIVERGENCE, right, given, said, gap, trials, explain)

    def _guess(
        self, request: WorkloadRequest, ids: Ids, at: int, neighbours: Sequence[WorkloadRequest]
    ) -> str | None:
        """The likely cause of an answer that is wrong from token ``at`` on."""
        prompt = self.prompt_ids(request)
        others = [self.prompt_ids(n) for n in neighbours if n.messages is None]
        answers = self.model.answers_for(_GUESSING_S)
        right = answers((*prompt, *ids[:at]), max(1, int(request.params["max_tokens"]) - at))
        if right is None:
            return None
        ends = frozenset[int]() if request.params.get("ignore_eos") else self.model.model.eos_ids
        end = next((i + 1 for i, token in enumerate(right) if token in ends), len(right))
        return diagnose(answers, prompt, (*ids[:at], *right[:end]), ids, others)

    async def compare(
        self,
        first: RequestTranscript,
        second: RequestTranscript,
        request: WorkloadRequest | None = None,
    ) -> Judgement:
        """Equal, or the worse judgement of the two."""
        if first.first.text == second.first.text:
            return Judgement(Agreement.EXACT, first.first.text, second.first.text)
        if request is None:
            raise NotPredictable("the request is not known")
        judgements = [await self.judge(request, answer) for answer in (first, second)]
        order = [Agreement.EXACT, Agreement.TIE_FLIP, Agreement.DIVERGENCE]
        return max(judgements, key=lambda judgement: order.index(judgement.agreement))

    async def forced(self, request: WorkloadRequest, answer: RequestTranscript) -> Forced:
        """The answer's tokens, each beside the likeliest one at its place.

        Raises NotPredictable where the model cannot say what must come.
        """
        params = request.params
        if params.get("temperature", 1):
            raise NotPredictable("a sampled answer")
        if any(params.get(name) for name in _STEERING):
            raise NotPredictable("a parameter changes which token wins")
        if params.get("stop_token_ids"):
            raise NotPredictable("servers differ in showing the token that ended an answer")
        if answer.first.token_ids is None or params.get("stop"):
            return await self._spelled(request, answer)
        return await self._by_ids(request, answer, answer.first.token_ids)

    async def _by_ids(
        self, request: WorkloadRequest, answer: RequestTranscript, ids: Ids
    ) -> Forced:
        prompt, params = self.prompt_ids(request), request.params
        eos = self.model.model.eos_ids
        least = int(params.get("min_tokens") or 0)
        rows = await self.model.forced(prompt, ids)
        barred = [eos if i < least else frozenset[int]() for i in range(len(rows))]
        gaps = [r.gap(t, b) for r, t, b in zip(rows, ids, barred, strict=False)]
        likeliest = [row.best(b) for row, b in zip(rows, barred, strict=True)]
        wrong_at = None
        if not params.get("ignore_eos"):
            ended = next((i for i, t in enumerate(ids[:-1]) if t in eos), None)
            wrong_at = None if ended is None else ended + 1
        if wrong_at is None and not await self._may_end(request, answer, prompt, ids):
            wrong_at = len(ids)
        return Forced(ids, tuple(likeliest[: len(ids) + 1]), tuple(gaps), wrong_at)

    async def _spelled(self, request: WorkloadRequest, answer: RequestTranscript) -> Forced:
        """The tokens that the text must have come from, up to the stop string that cut it."""
        prompt, params, text = self.prompt_ids(request), request.params, answer.first.text
        speller = Speller(self.model, prompt, self.granted)
        most, finish = int(params["max_tokens"]), _finish(answer)
        stop = params.get("stop")
        stops = [stop] if isinstance(stop, str) else [*(stop or ())]
        for stop in stops if finish == "stop" else ():
            # The stop string may begin and end within tokens: the text alone need not be spellable.
            cut = await speller.spell(text + stop, most, open_end=True)
            if cut.wrong_at is None:
                return Forced(tuple(cut.ids), tuple(cut.ids), tuple(cut.gaps))
        best, furthest = Forced((), (), (), 0), -1
        async for found in speller.spellings(text, most):
            ids, reach = tuple(found.ids), found.wrong_at
            wrong_at: int | None = len(ids)
            if reach is None and await self._text_may_end(request, answer, prompt, ids):
                wrong_at = None
            forced = Forced(ids, ids, tuple(found.gaps), wrong_at)
            if wrong_at is None:
                return forced
            reach = len(text) + 1 if reach is None else reach
            if reach > furthest:
                best, furthest = forced, reach
        return best

    async def _text_may_end(
        self, request: WorkloadRequest, answer: RequestTranscript, prompt: Ids, ids: Ids
    ) -> bool:
        """Whether a text spelled with these tokens may be over."""
        most, text, finish = int(request.params["max_tokens"]), answer.first.text, _finish(answer)
        # Bytes of a character that never became whole may not show: how many is not known.
        counted = not text.endswith(REPLACEMENT) and finish != "length"
        if counted or len(ids) == most:
            return await self._may_end(request, answer, prompt, ids)
        if answer.ending is Ending.CANCELLED:
            return True
        rest = await self.model.greedy((*prompt, *ids), most - len(ids))
        speller = Speller(self.model, prompt, self.granted)
        return speller.text([*ids, *rest]) == speller.text(ids)

    async def _may_end(
        self, request: WorkloadRequest, answer: RequestTranscript, prompt: Ids, ids: Ids
    ) -> bool:
        """Whether an answer may be over after these tokens, for the reason that it gives."""
        params = request.params
        if answer.ending is Ending.CANCELLED:
            return True
        if _finish(answer) != "stop":
            return len(ids) == int(params["max_tokens"])
        ends = self.model.model.eos_ids | self.model.codec.special_ids
        if ids and ids[-1] in ends:
            return True
        if params.get("ignore_eos") or len(ids) < int(params.get("min_tokens") or 0):
            return False
        [scores] = await self.model.forced((*prompt, *ids), ())
        return any(scores.gap(end) <= self.granted for end in ends if scores.knows(end))

    async def _going_on(self, prompt: Ids, ids: Ids, request: WorkloadRequest) -> str:
        """What the model says after these tokens."""
        room = max(1, int(request.params["max_tokens"]) - len(ids))
        rest = await self.model.greedy((*prompt, *ids), room, ends=self.model.model.eos_ids)
        speller = Speller(self.model, prompt, self.granted)
        return speller.text([*ids, *rest])[len(speller.text(ids)) :]


def _finish(answer: RequestTranscript) -> str:
    return next(iter(answer.first.finish_reasons), "")


def _trials(prompt: Ids, forced: Forced, count: int) -> tuple[tuple[int, bool], ...]:
    """Each token that was judged: what came before it, hashed, and whether it flipped."""
    digest = hashlib.blake2b(repr(prompt).encode(), digest_size=8)
    trials = []
    for token, gap in zip(forced.ids[:count], forced.gaps[:count], strict=True):
        trials.append((int.from_bytes(digest.digest()), gap > 0))
        digest.update(f",{token}".encode())
    return tuple(trials)
