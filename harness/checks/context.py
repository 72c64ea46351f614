"""What a check sees while it runs: draws, requests, the oracle, and where to put evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

from hypothesis import strategies as st

from harness.checks.assertions import PropertyBroken, assert_complete, assert_equal
from harness.checks.capabilities import Capabilities, Capability
from harness.checks.draws import COMMON_SIZES, Draws, contents, prompt_lengths
from harness.checks.evidence import interleaved_pairs, peak_overlap
from harness.checks.example import NotApplicable, Run, Tally
from harness.checks.gauges import Gauge, read_gauges
from harness.checks.scores import close
from harness.checks.session import Session
from harness.oracles.oracle import Agreement, Expected, Judgement, NotPredictable, Prompt
from harness.transcript import Ending, RequestTranscript, Transcript
from workloads.workload import Workload, WorkloadRequest


class CheckContext:
    """One example of one check."""

    def __init__(self, session: Session, check_id: str, draws: Draws, tally: Tally) -> None:
        self.session = session
        self.check_id = check_id
        self.draws = draws
        self.tally = tally
        self.runs: list[Run] = []

    @property
    def capabilities(self) -> Capabilities:
        """What the server was found to be able to do."""
        return self.session.capabilities

    @property
    def page_sizes(self) -> tuple[int, ...]:
        """The server's page size where it shows, else the ones in common use."""
        known = self.capabilities.page_size
        return (known,) if known and known > 1 else COMMON_SIZES

    @property
    def longest_prompt(self) -> int:
        """The most prompt tokens that this run draws: the budget's, or what the server can hold."""
        limit = self.capabilities.context_limit
        most = self.session.budget.prompt_tokens
        return most if limit is None else min(most, limit - 2 * self.session.budget.output_tokens)

    @property
    def lasting(self) -> dict[str, Any]:
        """The fields that make an answer go on to its last allowed token, where there are any."""
        return {"ignore_eos": True} if Capability.IGNORE_EOS in self.capabilities else {}

    def enough_to_fill(self, tokens: int, least: int) -> int:
        """How many requests of ``tokens`` tokens overfill a cache that holds one full context.

        ``least`` where that is fewer, or where a burst of that size is more than the budget allows.
        """
        limit = self.capabilities.context_limit
        number = least if limit is None else -(-5 * limit // (4 * tokens))
        return number if least < number <= 3 * self.session.budget.crowd else least

    def draw(self, strategy: st.SearchStrategy[Any], label: str) -> Any:
        """One plain value (numbers, strings, lists of them)."""
        return self.draws.draw(strategy, label)

    def prompt(self, tokens: int, content: int | str) -> Prompt:
        """The prompt of this many tokens that ``content`` stands for, another one in each check."""
        return self.session.oracle.prompt(
            tokens, f"{self.session.seed}/{self.check_id}/{tokens}/{content}"
        )

    def extended(self, shared: int, content: int | str, tail: int, tail_content: str) -> Prompt:
        """A prompt that begins with ``shared`` tokens of ``content`` and has a tail of its own."""
        bos_tokens = self.session.oracle.bos_tokens
        beginning = self.prompt(shared, content)
        end = self.prompt(tail + bos_tokens, f"tail/{tail_content}")
        ids = beginning.ids + end.ids[bos_tokens:] if beginning.ids and end.ids else None
        text = None if beginning.text is None or end.text is None else beginning.text + end.text
        return Prompt(ids, text)

    def ask(
        self, key: str, prompt: Prompt, max_tokens: int, *, stream: bool = True, **params: Any
    ) -> WorkloadRequest:
        """A greedy request; token ids go out and are asked for where the server takes them."""
        extra = self.session.oracle.extra_params
        fields: dict[str, Any] = {"max_tokens": max_tokens, "temperature": 0, **extra} | params
        if Capability.TOKEN_IDS_OUT in self.capabilities:
            fields.setdefault("return_token_ids", True)
        if prompt.ids is not None and Capability.TOKEN_ID_PROMPTS in self.capabilities:
            return WorkloadRequest(key, prompt_ids=prompt.ids, params=fields, stream=stream)
        if prompt.text is None:
            self.unsupported("the prompt has no text form, and the server takes no token ids")
        return WorkloadRequest(key, prompt_text=prompt.text, params=fields, stream=stream)

    def draw_request(
        self,
        key: str,
        *,
        tokens: st.SearchStrategy[int] | int | None = None,
        max_tokens: st.SearchStrategy[int] | int | None = None,
        **params: Any,
    ) -> WorkloadRequest:
        """One request of drawn length, content and output length."""
        size = self._lengths(tokens)
        length, content, out = self.draw(
            st.tuples(size, contents(), self._outputs(max_tokens)), key
        )
        return self.ask(key, self.prompt(length, f"{key}/{content}"), out, **params)

    async def draw_lasting_request(
        self,
        key: str,
        characters: int,
        *,
        tokens: st.SearchStrategy[int] | int | None = None,
        max_tokens: st.SearchStrategy[int] | int | None = None,
    ) -> WorkloadRequest:
        """A drawn request whose answer, as far as a few tries can find one, has so many characters.

        Where the model ends answers by itself, the content after the drawn one is tried, and so on.
        """
        size = self._lengths(tokens)
        length, content, out = self.draw(
            st.tuples(size, contents(), self._outputs(max_tokens)), key
        )
        for attempt in range(12):
            request = self.ask(key, self.prompt(length, f"{key}/{content + attempt}"), out)
            if len((await self.expect(request)).text) >= characters:
                break
        return request

    def draw_crowd(
        self,
        *,
        least: int = 2,
        most: int | None = None,
        tokens: st.SearchStrategy[int] | int | None = None,
        max_tokens: st.SearchStrategy[int] | int | None = None,
        label: str = "r",
        **params: Any,
    ) -> list[WorkloadRequest]:
        """Several requests, each of its own drawn length, content and output length."""
        row = st.tuples(self._lengths(tokens), contents(), self._outputs(max_tokens))
        rows = self.draw(
            st.lists(row, min_size=least, max_size=max(least, most or self.session.budget.crowd)),
            f"crowd {label}",
        )
        return [
            self.ask(f"{label}{i}", self.prompt(length, f"{label}{i}/{content}"), out, **params)
            for i, (length, content, out) in enumerate(rows)
        ]

    def _lengths(self, tokens: st.SearchStrategy[int] | int | None) -> st.SearchStrategy[int]:
        if tokens is None:
            return prompt_lengths(self.page_sizes, high=self.longest_prompt)
        return st.just(tokens) if isinstance(tokens, int) else tokens

    def _outputs(self, max_tokens: st.SearchStrategy[int] | int | None) -> st.SearchStrategy[int]:
        most = self.session.budget.output_tokens
        if max_tokens is None:
            return st.integers(most // 3, most)
        return st.just(max_tokens) if isinstance(max_tokens, int) else max_tokens

    async def run(self, *requests: WorkloadRequest) -> Run:
        """Send the requests, each when it is due, and wait for all of them."""
        origin = f"check {self.check_id}"
        workload = Workload(tuple(requests), origin=origin, seed=self.session.seed)
        self.tally.requests += len(requests)
        run = Run(self.session.asker.prepared(workload), Transcript())
        self.runs.append(run)
        run.transcript = await self.session.asker.run(run.workload)
        return run

    async def run_fairly(self, *requests: WorkloadRequest) -> Run:
        """All at once where the oracle is exact; else one by one, so that no tie can flip."""
        if self.session.oracle.exact:
            return await self.run(*requests)
        runs = [await self.run(request) for request in requests]
        merged = Run(Workload(tuple(requests), origin=f"check {self.check_id}"), Transcript())
        for run in runs:
            merged.transcript.requests.update(run.transcript.requests)
        return merged

    async def is_exact(self, request: WorkloadRequest, answer: RequestTranscript) -> bool:
        """Whether the answer is the expected one to the last token, ties not allowed."""
        if self.session.oracle.exact:
            return True
        try:
            judgement = await self.session.oracle.judge(request, answer)
        except NotPredictable:
            return False
        return judgement.agreement is Agreement.EXACT

    async def expect(self, request: WorkloadRequest) -> Expected:
        """The right answer."""
        return await self.session.oracle.expect(request)

    def text_of(self, token_ids: Sequence[int]) -> str:
        """The text of output tokens. Only the probe and reference oracles know it."""
        return self.session.oracle.text(token_ids)

    def text_of_prompt(self, request: WorkloadRequest) -> str:
        """The text of a prompt made by `prompt`, whichever way it was sent."""
        if request.prompt_text is not None:
            return request.prompt_text
        return self.session.oracle.text(request.prompt_ids or ())

    async def gauges(self) -> dict[Gauge, float]:
        """The server's gauges, as far as it shows any."""
        return read_gauges(await self.session.target.metrics())

    async def assert_as_alone(self, run: Run, *keys: str) -> None:
        """Every request (or those named) that was not to be cancelled got its solo answer."""
        __tracebackhide__ = True
        for request in run.workload.requests:
            if keys and request.key not in keys:
                continue
            answer = run[request.key]
            if not (request.cancels and answer.ending is Ending.CANCELLED):
                assert_complete(answer)
            await self.assert_right(request, answer, run.workload.requests)

    async def assert_right(
        self,
        request: WorkloadRequest,
        answer: RequestTranscript,
        others: Sequence[WorkloadRequest] = (),
    ) -> None:
        """What arrived is the answer that the oracle expects."""
        __tracebackhide__ = True
        neighbours = [o for o in others if o.key != request.key]
        try:
            judgement = await self.session.oracle.judge(request, answer, neighbours)
        except NotPredictable:
            self.tally.unjudged += 1
            return
        self._take(judgement, request.key, "its answer alone")

    def _take(self, judgement: Judgement, key: str, other: str) -> None:
        """Count a judgement; raise PropertyBroken for a divergence."""
        __tracebackhide__ = True
        self.tally.judged += 1
        for before, flipped in judgement.trials:
            self.tally.trials.setdefault(before, flipped)
        if judgement.agreement is Agreement.TIE_FLIP:
            self.tally.tie_flips += 1
        if judgement.agreement is Agreement.DIVERGENCE:
            unit = "character" if isinstance(judgement.actual, str) else "token"
            gap = f" (gap {judgement.gap:.3g})" if judgement.gap is not None else ""
            raise PropertyBroken(
                f"request {key} differs from {other} at {unit} {judgement.first_difference}{gap}",
                request_key=key,
                expected=judgement.expected,
                actual=judgement.actual,
                first_difference=judgement.first_difference,
                guess=judgement.explain,
            )

    async def assert_same_answer(self, first: RequestTranscript, second: RequestTranscript) -> None:
        """Two answers to one request are equal, or part only at a near-tie."""
        __tracebackhide__ = True
        try:
            request = self._request_of(second)
            judgement = await self.session.oracle.compare(first, second, request)
        except NotPredictable:
            self.tally.unjudged += 1
            return
        self._take(judgement, second.key, "the answer that it was given before")

    def _request_of(self, answer: RequestTranscript) -> WorkloadRequest | None:
        """What was asked to get this answer."""
        for run in self.runs:
            if run.transcript.requests.get(answer.key) is answer:
                return next(r for r in run.workload.requests if r.key == answer.key)
        return None

    def close(self, first: float, second: float) -> bool:
        """Whether two logprobs may be the same number, computed twice on this server."""
        return close(first, second, self.session.oracle.logprob_band)

    async def assert_choices(
        self, request: WorkloadRequest, answer: RequestTranscript, count: int
    ) -> None:
        """A greedy request for ``count`` choices got each of them, whole and right."""
        __tracebackhide__ = True
        key = answer.key
        assert_equal(f"the choices of {key}", sorted(answer.choices), [*range(count)], key=key)
        expected = await self.expect(replace(request, params={**request.params, "n": 1}))
        for index, choice in sorted(answer.choices.items()):
            what = f"choice {index} of {key}"
            assert_equal(f"finish reasons of {what}", len(choice.finish_reasons), 1, key=key)
            if self.session.oracle.exact:
                assert_equal(what, choice.text, expected.text, key=key)

    def evidence(self, name: str, value: float) -> None:
        """Record the largest ``value`` seen; a check lists in ``shows`` the least it needs."""
        self.tally.evidence[name] = max(self.tally.evidence.get(name, 0), value)

    def evidence_of_overlap(self, run: Run) -> None:
        """Record that token streams interleaved in time."""
        self.evidence("interleaved_pairs", interleaved_pairs(run.transcript))
        self.evidence("peak_overlap", peak_overlap(run.transcript))

    def unsupported(self, reason: str) -> NoReturn:
        """End the check: the server cannot do what it needs."""
        raise NotApplicable(reason)
