"""A test double for the engine: no model, scripted answers, steps under the test's control.

It keeps the engine's contract (one thread, events in order, the last one with a finish reason) and
counts pages, so that protocol tests can ask whether everything was given back.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from reference_engine.request import (
    FinishReason,
    Request,
    RequestRefused,
    TokenEvent,
    TokenLogprobs,
)
from reference_engine.server.text_codec import TextCodec

PAGE_SIZE = 16
VOCAB_SIZE = 300
EOS_ID = 2

Script = Callable[[Request, int], Sequence[int]]


def counting(request: Request, choice: int) -> list[int]:
    """Ids that depend on the prompt and the choice: every request has an answer of its own."""
    first = sum(request.prompt_ids) + 7 * choice
    return [40 + (first + i) % 80 for i in range(request.params.max_tokens)]


@dataclass(frozen=True)
class FakeStats:
    running: int = 0
    waiting: int = 0
    pages_total: int = 1000
    pages_free: int = 1000
    pages_used: int = 0
    pages_cached: int = 0
    kv_bytes_per_token: int = 0
    preemptions_total: int = 0
    prefix_evictions_total: int = 0
    budget_tokens_total: int = 0
    prefill_tokens_total: int = 0
    decode_tokens_total: int = 0
    padding_tokens_dynamic_total: int = 0
    padding_tokens_static_total: int = 0
    tokens_without_cache_total: int = 0
    prefix_queries_total: int = 0
    prefix_hits_total: int = 0
    steps_total: int = 0
    prompt_tokens_total: int = 0
    generated_tokens_total: int = 0
    requests_total: int = 0
    finished_total: int = 0
    cancelled_total: int = 0


@dataclass(frozen=True)
class FakeChunk:
    request_id: str
    choice: int
    kind: str
    start: int
    count: int


@dataclass(frozen=True)
class FakeStep:
    index: int
    t_start_s: float
    t_end_s: float
    chunks: tuple[FakeChunk, ...]
    preempted: tuple[str, ...] = ()
    waiting: int = 0
    pages_free: int = 0
    pages_used: int = 0
    pages_cached: int = 0


@dataclass
class _Running:
    request: Request
    answers: list[list[int]]
    produced: int = 0
    done: set[int] = field(default_factory=set)


class FakeEngine:
    """``script`` gives the ids of a choice; with ``gate`` a step waits until the test releases."""

    def __init__(
        self, script: Script = counting, *, gate: threading.Semaphore | None = None
    ) -> None:
        self.script = script
        self.gate = gate
        self.cancelled: list[str] = []
        self.cancelled_choices: list[tuple[str, int]] = []
        self.submitted: list[Request] = []
        self.explode_in_step: Exception | None = None
        self.refuse: RequestRefused | None = None
        self.cached_tokens = 0
        self.last_step: FakeStep | None = None
        self._running: dict[str, _Running] = {}
        self._pending: list[TokenEvent] = []
        self._steps = self._generated = 0

    @property
    def has_work(self) -> bool:
        return bool(self._running or self._pending)

    def submit(self, request: Request) -> None:
        if self.refuse is not None:
            raise self.refuse
        if request.request_id in self._running:
            raise RequestRefused("duplicate id", field="request_id")
        answers = [list(self.script(request, c)) for c in range(request.params.n)]
        self.submitted.append(request)
        self._running[request.request_id] = _Running(request, answers)

    def cancel(self, request_id: str, choice: int | None = None) -> bool:
        running = self._running.get(request_id)
        if running is None:
            return False
        if choice is not None:
            running.done.add(choice)
            self.cancelled_choices.append((request_id, choice))
            return True
        del self._running[request_id]
        self.cancelled.append(request_id)
        for choice in set(range(len(running.answers))) - running.done:
            ended = FinishReason.CANCELLED
            self._pending.append(TokenEvent(request_id, choice, None, finish_reason=ended))
        return True

    def step(self) -> list[TokenEvent]:
        if self.gate is not None:
            self.gate.acquire()
        if self.explode_in_step is not None:
            raise self.explode_in_step
        t_start_s = time.monotonic()
        events, self._pending = self._pending, []
        chunks = []
        for running in list(self._running.values()):
            position = len(running.request.prompt_ids) + running.produced
            chunks.append(FakeChunk(running.request.request_id, 0, "decode", position, 1))
            events += self._advance(running)
        self._steps += 1
        self.last_step = FakeStep(self._steps, t_start_s, time.monotonic(), tuple(chunks))
        return events

    def stats(self) -> FakeStats:
        pages = sum(
            math.ceil((len(r.request.prompt_ids) + r.produced) / PAGE_SIZE)
            for r in self._running.values()
        )
        return FakeStats(
            running=len(self._running),
            pages_used=pages,
            pages_free=1000 - pages,
            steps_total=self._steps,
            generated_tokens_total=self._generated,
            cancelled_total=len(self.cancelled),
        )

    def _advance(self, running: _Running) -> list[TokenEvent]:
        index, request = running.produced, running.request
        running.produced += 1
        events = []
        for choice, answer in enumerate(running.answers):
            if choice not in running.done:
                event = self._event(request, choice, answer, index)
                events.append(event)
                if event.finish_reason is not None:
                    running.done.add(choice)
        if len(running.done) == len(running.answers):
            self._running.pop(request.request_id, None)
        return events

    def _event(self, request: Request, choice: int, answer: list[int], index: int) -> TokenEvent:
        params = request.params
        token_id = answer[index]
        self._generated += 1
        ends = {EOS_ID} if not params.ignore_eos else set()
        finish = None
        if token_id in ends | set(params.stop_token_ids):
            finish = FinishReason.STOP
        elif index + 1 == min(params.max_tokens, len(answer)):
            finish = FinishReason.LENGTH
        scores = None if params.logprobs is None else _scores(token_id, params.logprobs)
        prompt = None
        if params.prompt_logprobs is not None and index == 0:
            k = params.prompt_logprobs
            prompt = (None, *(_scores(i, k) for i in request.prompt_ids[1:]))
        return TokenEvent(
            request.request_id, choice, token_id, scores, finish, self.cached_tokens, prompt
        )


def _scores(token_id: int, k: int) -> TokenLogprobs:
    top = tuple((token_id + i, -0.25 * (i + 1)) for i in range(k))
    return TokenLogprobs(token_id, -0.25, top)


def spelling(codec: TextCodec, text: str) -> FakeEngine:
    """An engine whose every answer is ``text`` and then EOS."""
    ids = [*codec.encode(text, add_special_tokens=False), EOS_ID]
    return FakeEngine(lambda request, choice: ids)
