"""The probe oracle: the integer rule knows every token, so an answer is right or wrong."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from harness.oracles.diagnosis import diagnose
from harness.oracles.oracle import Agreement, Expected, Judgement, NotPredictable, Prompt
from harness.oracles.oracle import first_difference as where_differs
from harness.transcript import Ending, RequestTranscript
from reference_engine.probe import ProbeConfig, Rule, RuleAnswer, decode_tokens, encode_text
from workloads.workload import WorkloadRequest

# One token each in every probe tokenizer, and safe in a shell, so that a curl line reads well.
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:;"
# Parameters that change which token wins; what they do to a probe is for the checks that use them.
_STEERING: Final = ("logit_bias", "repetition_penalty", "presence_penalty", "frequency_penalty")


class ProbeOracle:
    """Answers from the rule of one probe checkpoint."""

    name = "probe"
    exact = True
    bos_tokens = 1
    calm = None
    logprob_band = None

    def __init__(self, config: ProbeConfig) -> None:
        self.config = config
        self.rule = Rule(config)
        signs = self.rule.vocabulary.signs
        self._letters_by_signs: dict[int, list[str]] = {}
        for letter in _LETTERS:
            self._letters_by_signs.setdefault(signs[self.encode(letter)[1]], []).append(letter)
        self._generate = lru_cache(maxsize=4096)(self._generate_uncached)

    @property
    def extra_params(self) -> Mapping[str, Any]:
        """Nothing: the rule needs no logprobs."""
        return {}

    @property
    def description(self) -> str:
        """What it stands on."""
        return f"the integer rule of {self.config.name}: every token is known, no tolerance"

    def prompt(self, tokens: int, content: str) -> Prompt:
        """BOS and ``tokens - 1`` random characters of one token each.

        Every other content ends balanced: its last characters drive the rule's sums to zero, where
        one token more, less or changed shows at once.
        """
        drawn = random.Random(content)
        balanced = drawn.random() < 0.5
        text = "".join(drawn.choices(_LETTERS, k=tokens - 1))
        if balanced:
            text = self._balanced(text, drawn)
        ids = self.encode(text)
        if len(ids) != tokens:
            raise AssertionError(f"{self.config.name} gave {len(ids)} tokens for {tokens}")
        return Prompt(ids, text)

    def _balanced(self, text: str, drawn: random.Random) -> str:
        """The text with as much of its end replaced as it takes to bring every sum near zero."""
        state = self.rule.begin()
        self.rule.push(state, self.config.bos_id)
        every = (1 << self.config.sign_bits) - 1
        letters = list(text)
        for place, letter in enumerate(letters):
            furthest = max(abs(total) for total in state.doubled_sums) // 2
            if len(letters) - place <= furthest + 2:
                wanted = self._letters_by_signs.get(every ^ state.signs[-1], [letter])
                letters[place] = drawn.choice(wanted)
            self.rule.push(state, self.encode(letters[place])[1])
        return "".join(letters)

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of ``text``, after BOS."""
        return tuple(encode_text(self.config, text))

    def prompt_ids(self, request: WorkloadRequest) -> tuple[int, ...]:
        """The token ids of the request's prompt. Raises NotPredictable for chat messages."""
        if request.prompt_ids is not None:
            return request.prompt_ids
        if request.prompt_text is None:
            raise NotPredictable("chat messages are judged by the chat template's own check")
        return tuple(encode_text(self.config, request.prompt_text))

    def second_token(self) -> tuple[int, str]:
        """The token that is second best at every position, and its text."""
        undefined = self.config.undefined_id
        return undefined, self.text([undefined])

    async def wrong_followers(self, token_ids: Sequence[int], given: Sequence[int]) -> list[int]:
        """The places where ``given`` is not what the rule puts after each token."""
        right = self.rule.followers(token_ids)
        return [i for i, pair in enumerate(zip(right, given, strict=False)) if pair[0] != pair[1]]

    def scores(self, request: WorkloadRequest, token_ids: Sequence[int]) -> None:
        """The rule knows tokens, no probabilities."""
        return

    def text(self, token_ids: Sequence[int]) -> str:
        """The text of output tokens, without EOS."""
        kept = [i for i in token_ids if i != self.config.eos_id]
        return bytes(decode_tokens(self.config, kept)).decode("utf-8", errors="replace")

    def continuation(self, context: Sequence[int], tokens: int) -> tuple[int, ...] | None:
        """The rule's answer past any end; None where the context is no prompt of a probe."""
        try:
            return self.rule.generate(context, tokens, ignore_eos=True).token_ids
        except ValueError:
            return None

    async def expect(self, request: WorkloadRequest) -> Expected:
        """The rule's answer, cut at the first stop string."""
        answer = self._answer(request)
        text, finish = self.text(answer.token_ids), answer.finish_reason
        token_ids: tuple[int, ...] | None = tuple(answer.token_ids)
        if cut := _first_stop(text, request.params.get("stop")):
            text, finish, token_ids = text[: cut[0]], "stop", None
        return Expected(token_ids, text, finish, len(self.prompt_ids(request)))

    async def judge(
        self,
        request: WorkloadRequest,
        answer: RequestTranscript,
        neighbours: Sequence[WorkloadRequest] = (),
    ) -> Judgement:
        """Equal, or wrong at the first token (or character) that differs."""
        expected = await self.expect(request)
        right, given = _comparable(self.config.eos_id, expected, answer)
        if answer.ending is Ending.CANCELLED:
            right = right[: len(given)]
        difference = where_differs(right, given)
        if difference is None:
            return Judgement(Agreement.EXACT, right, given)

        def explain() -> str | None:
            if isinstance(given, str) or expected.token_ids is None:
                return None
            prompts = [self.prompt_ids(n) for n in neighbours if n.messages is None]
            prompt = self.prompt_ids(request)
            return diagnose(self.continuation, prompt, expected.token_ids, given, prompts)

        return Judgement(Agreement.DIVERGENCE, right, given, difference, explain=explain)

    async def compare(
        self,
        first: RequestTranscript,
        second: RequestTranscript,
        request: WorkloadRequest | None = None,
    ) -> Judgement:
        """Equal or not: a probe knows no near-ties."""
        ids = first.first.token_ids, second.first.token_ids
        right: Sequence[int] | str = first.first.text
        given: Sequence[int] | str = second.first.text
        if ids[0] is not None and ids[1] is not None:
            right, given = ids[0], ids[1]
        difference = where_differs(right, given)
        agreement = Agreement.EXACT if difference is None else Agreement.DIVERGENCE
        return Judgement(agreement, right, given, difference)

    def _answer(self, request: WorkloadRequest) -> RuleAnswer:
        params = request.params
        if any(params.get(name) for name in _STEERING):
            raise NotPredictable("a parameter changes which token wins")
        if params.get("stop_token_ids"):
            raise NotPredictable("servers differ in showing the token that ended an answer")
        ignore_eos = bool(params.get("ignore_eos", False))
        answer = self._generate(self.prompt_ids(request), int(params["max_tokens"]), ignore_eos)
        if answer.finish_reason == "stop" and len(answer.token_ids) <= params.get("min_tokens", 0):
            raise NotPredictable("min_tokens forbids the rule's EOS")
        return answer

    def _generate_uncached(
        self, prompt_ids: tuple[int, ...], max_tokens: int, ignore_eos: bool
    ) -> RuleAnswer:
        return self.rule.generate(prompt_ids, max_tokens, ignore_eos=ignore_eos)


def _first_stop(text: str, stop: str | Sequence[str] | None) -> tuple[int, str] | None:
    """Where the earliest stop string begins, and which one it is."""
    stops = [stop] if isinstance(stop, str) else list(stop or ())
    found = [(text.index(s), s) for s in stops if s and s in text]
    return min(found, default=None)


def _comparable(
    eos_id: int, expected: Expected, answer: RequestTranscript
) -> tuple[Sequence[int] | str, Sequence[int] | str]:
    """Ids on both sides where both are known, else texts.

    Servers differ in whether a final EOS is among the ids they report, so it is left out of both.
    """
    given = answer.first.token_ids
    if expected.token_ids is None or given is None:
        return expected.text, answer.first.text
    right = expected.token_ids
    if right and right[-1] == eos_id and expected.finish_reason == "stop":
        right = right[:-1]
        if given and given[-1] == eos_id:
            given = given[:-1]
    return right, given
