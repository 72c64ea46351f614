"""One HTTP request as the engine sees it: some prompts, each with ``n`` choices, one mailbox.

A `Generation` submits the prompts, turns token events into text deltas, ends a choice whose stop
string has appeared, counts usage, and cancels whatever is left when it is closed, however that
comes about: the end, an error, or a client that hung up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from reference_engine.request import (
    FinishReason,
    Request,
    RequestRefused,
    SamplingParams,
    TokenEvent,
    TokenLogprobs,
)
from reference_engine.server.engine_host import EngineHost
from reference_engine.server.errors import ApiError
from reference_engine.server.latency import Latency, Timings
from reference_engine.server.mailbox import Mailbox
from reference_engine.server.text_stream import TextStream
from reference_engine.server.text_streams import TextStreams

# The engine's names for what the API calls otherwise.
_FIELD_NAMES = {"prompt_ids": "prompt"}


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: its ids, and its text where the client sent text."""

    ids: tuple[int, ...]
    text: str | None = None


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """What to generate, after validation.

    Choice ``i`` of prompt ``p`` has the index ``p * sampling.n + i`` in the answer. ``prompt_only``
    asks for no new token: one is computed, because the engine has to, and dropped.
    """

    response_id: str
    prompts: tuple[Prompt, ...]
    sampling: SamplingParams
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    skip_special_tokens: bool = True
    cache_salt: str | None = None
    priority: int = 0
    prompt_only: bool = False


@dataclass(frozen=True, slots=True)
class ChoiceDelta:
    """News about one choice: at most one token, the text it completes, perhaps the end.

    ``text_offset`` counts the characters of the choice's text before this token, without echo.
    """

    index: int
    text: str
    token_id: int | None
    text_offset: int = 0
    logprobs: TokenLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    first: bool = False
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None


@dataclass(slots=True)
class UsageCount:
    """The tokens of one request, summed over prompts and ``choices``."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    choices: int = 1


@dataclass(slots=True)
class _Choice:
    index: int
    stream: TextStream
    latency: Latency
    tokens: int = 0
    done: bool = False


@dataclass(slots=True)
class _EngineRequest:
    request_id: str
    choices: list[_Choice]
    cached_tokens: int = 0
    open_choices: int = field(init=False)

    def __post_init__(self) -> None:
        self.open_choices = len(self.choices)


class Generation:
    """An async context manager; iterate `batches` inside it."""

    def __init__(
        self,
        host: EngineHost,
        texts: TextStreams,
        plan: GenerationPlan,
        *,
        timings: Timings,
        max_pending_events: int,
    ) -> None:
        self._host = host
        self._texts = texts
        self._plan = plan
        self._timings = timings
        self._mailbox = Mailbox(max_pending_events)
        self._requests: dict[str, _EngineRequest] = {}
        self.usage = UsageCount(
            prompt_tokens=sum(len(p.ids) for p in plan.prompts),
            choices=len(plan.prompts) * plan.sampling.n,
        )

    async def __aenter__(self) -> Self:
        """Submit every prompt. Raises ApiError when one is refused; then nothing stays behind."""
        try:
            for number, prompt in enumerate(self._plan.prompts):
                await self._submit(number, prompt)
        except BaseException:
            self._cancel_all()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cancel_all()

    async def batches(self) -> AsyncIterator[list[ChoiceDelta]]:
        """Deltas as they come, those that arrived together together, until all choices ended.

        Raises ApiError when the engine fails this request, Overflow when nobody reads.
        """
        while any(request.open_choices for request in self._requests.values()):
            deltas: list[ChoiceDelta] = []
            failure: ApiError | None = None
            for event, stepped_s in await self._mailbox.take():
                try:
                    delta = self._accept(event, stepped_s)
                except ApiError as error:
                    failure = error
                    break
                if delta is not None:
                    deltas.append(delta)
            if deltas:
                yield deltas
            if failure is not None:
                raise failure

    async def _submit(self, number: int, prompt: Prompt) -> None:
        plan = self._plan
        alone = len(plan.prompts) == 1
        request_id = plan.response_id if alone else f"{plan.response_id}/{number}"
        first = number * plan.sampling.n
        choices = [self._choice(first + i) for i in range(plan.sampling.n)]
        self._requests[request_id] = _EngineRequest(request_id, choices)
        self._mailbox.expect({request_id: len(choices)})
        request = Request(request_id, prompt.ids, plan.sampling, plan.cache_salt, plan.priority)
        try:
            await self._host.submit(request, self._mailbox)
        except RequestRefused as refused:
            field = _FIELD_NAMES.get(refused.field or "", refused.field)
            raise ApiError(str(refused), param=field, code="refused") from None

    def _choice(self, index: int) -> _Choice:
        plan = self._plan
        stream = self._texts.open(
            plan.stop,
            min_tokens=plan.sampling.min_tokens,
            include_stop=plan.include_stop,
            skip_special_tokens=plan.skip_special_tokens,
        )
        return _Choice(index, stream, Latency(self._timings))

    def _accept(self, event: TokenEvent, stepped_s: float) -> ChoiceDelta | None:
        request = self._requests[event.request_id]
        choice = request.choices[event.choice]
        if choice.done:
            return None
        if event.finish_reason in (FinishReason.ERROR, FinishReason.CANCELLED):
            reason = event.error or f"the engine ended the request: {event.finish_reason}"
            raise self._host.lost(reason)
        first = choice.tokens == 0
        if event.token_id is not None and not self._plan.prompt_only:
            choice.tokens += 1
            self.usage.completion_tokens += 1
            choice.latency.token(stepped_s)
        self._count_cached(request, event)
        return self._delta(request, choice, event, first)

    def _count_cached(self, request: _EngineRequest, event: TokenEvent) -> None:
        """A prompt counts once, whatever the number of its choices and events."""
        if event.cached_tokens > request.cached_tokens:
            self.usage.cached_tokens += event.cached_tokens - request.cached_tokens
            request.cached_tokens = event.cached_tokens

    def _delta(
        self, request: _EngineRequest, choice: _Choice, event: TokenEvent, first: bool
    ) -> ChoiceDelta:
        offset = choice.stream.decoded_chars
        text, stop_reason, finish = self._text(choice, event)
        if finish is not None:
            choice.done = True
            request.open_choices -= 1
            if request.open_choices == 0:
                self._host.cancel(request.request_id)
            elif event.finish_reason is None:
                self._host.cancel_choice(request.request_id, event.choice)
        return ChoiceDelta(
            choice.index,
            text,
            None if self._plan.prompt_only else event.token_id,
            offset,
            event.logprobs,
            finish,
            stop_reason,
            first,
            event.prompt_logprobs,
        )

    def _text(self, choice: _Choice, event: TokenEvent) -> tuple[str, str | int | None, str | None]:
        """The new text, the stop reason and the finish reason that this event brings."""
        plan, stream = self._plan, choice.stream
        if plan.prompt_only:
            return "", None, FinishReason.LENGTH.value
        finish = event.finish_reason
        text, token_id = "", event.token_id
        hidden = finish is FinishReason.STOP and not plan.include_stop
        if token_id is not None and not hidden:
            delta = stream.push(token_id)
            if delta.stop is not None:
                return delta.text, delta.stop, FinishReason.STOP.value
            text = delta.text
        if finish is None:
            return text, None, None
        delta = stream.finish()
        if delta.stop is not None:
            return text + delta.text, delta.stop, FinishReason.STOP.value
        by_id = finish is FinishReason.STOP and token_id in plan.sampling.stop_token_ids
        return text + delta.text, token_id if by_id else None, finish.value

    def _cancel_all(self) -> None:
        for request_id in self._requests:
            self._host.cancel(request_id)
