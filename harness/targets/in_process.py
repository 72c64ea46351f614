"""`InProcessTarget`: the reference engine without a network, behind the interface of a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any, Protocol

from harness.client.clock import RunClock
from harness.targets.in_process_text import Detokenizer
from harness.transcript import (
    ChoiceTranscript,
    Ending,
    RequestTranscript,
    TokenChunk,
    Transcript,
    Usage,
)
from reference_engine.request import (
    FinishReason,
    Request,
    RequestRefused,
    SamplingParams,
    TokenEvent,
)
from workloads.workload import Workload, WorkloadRequest

Encode = Callable[[str], Sequence[int]]
Decode = Callable[[Sequence[int]], str]

_SAMPLING_FIELDS = {f.name for f in fields(SamplingParams)}
_WITHOUT_MEANING = {"return_token_ids", "stream_options", "model", "user"}


class SteppedEngine(Protocol):
    """What the target needs of an engine."""

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do."""

    def submit(self, request: Request) -> None:
        """Take a request. Raises RequestRefused."""

    def cancel(self, request_id: str) -> bool:
        """Drop a request."""

    def step(self) -> list[TokenEvent]:
        """Compute one batch."""

    def stats(self) -> Any:
        """Counters and gauges."""


class InProcessTarget:
    """Runs workloads on an engine in this thread, one step at a time.

    An event's time is when its step ended. ``encode`` turns text prompts into ids (without it they
    are refused), ``decode`` ids into text (without it texts are empty). Text stop strings and chat
    messages belong to the server above an engine and are refused here.
    """

    def __init__(
        self,
        engine: SteppedEngine,
        *,
        encode: Encode | None = None,
        decode: Decode | None = None,
        name: str = "in-process",
    ) -> None:
        self._engine = engine
        self._encode = encode
        self._decode = decode
        self._name = name
        self._runs = 0

    @property
    def name(self) -> str:
        """``in-process``, unless named otherwise."""
        return self._name

    async def run(self, workload: Workload) -> Transcript:
        """Submit every request when it is due and step until all have ended."""
        self._runs += 1
        return await _Run(
            self._engine, workload, self._encode, self._decode, f"run{self._runs}/"
        ).finish()

    async def metrics(self) -> dict[str, float]:
        """The engine's statistics that are numbers."""
        stats = self._engine.stats()
        values = asdict(stats) if is_dataclass(stats) else dict(stats)  # type: ignore[arg-type]
        return {k: float(v) for k, v in values.items() if isinstance(v, int | float)}

    async def close(self) -> None:
        """Nothing to free."""


class _Run:
    def __init__(
        self,
        engine: SteppedEngine,
        workload: Workload,
        encode: Encode | None,
        decode: Decode | None,
        id_prefix: str,
    ) -> None:
        self._engine = engine
        self._workload = workload
        self._encode = encode
        self._decode = decode
        self._id_prefix = id_prefix
        self._clock = RunClock()
        self._waiting = sorted(workload.requests, key=lambda r: r.due_s)
        self._live: dict[str, WorkloadRequest] = {}
        self._token_events: dict[str, int] = {}
        self._open_choices: dict[str, int] = {}
        self._texts: dict[tuple[str, int], Detokenizer] = {}
        self._transcripts: dict[str, RequestTranscript] = {}

    async def finish(self) -> Transcript:
        while self._waiting or self._live:
            self._submit_due()
            if self._engine.has_work:
                events = self._engine.step()
                t_s = self._clock.seconds()
                for event in events:
                    self._note(event, t_s)
                self._cancel_late(t_s)
                await asyncio.sleep(0)
            elif self._waiting:
                await asyncio.sleep(self._seconds_to_next())
        order = [r.key for r in self._workload.requests]
        return Transcript({k: self._transcripts[k] for k in order}, self._clock.seconds())

    # --- going in -----------------------------------------------------------------------------

    def _seconds_to_next(self) -> float:
        next_s = min(r.due_s + (r.think_s if r.after_end else 0.0) for r in self._waiting)
        return max(0.0005, min(0.05, next_s - self._clock.seconds()))

    def _submit_due(self) -> None:
        t_s = self._clock.seconds()
        for request in list(self._waiting):
            limit = self._workload.concurrency
            if limit is not None and len(self._live) >= limit:
                return
            if self._is_due(request, t_s):
                self._waiting.remove(request)
                self._submit(request)

    def _is_due(self, request: WorkloadRequest, t_s: float) -> bool:
        if t_s < request.due_s:
            return False
        if (trigger := request.after) is not None:
            seen = self._token_events.get(trigger.key, 0)
            return seen >= trigger.tokens or self._has_ended(trigger.key)
        if request.after_end is not None:
            if not self._has_ended(request.after_end):
                return False
            ended_s = self._transcripts[request.after_end].t_end_s or 0.0
            return t_s >= ended_s + request.think_s
        return True

    def _has_ended(self, key: str) -> bool:
        return key in self._transcripts and key not in self._live

    def _submit(self, request: WorkloadRequest) -> None:
        t_s = self._clock.seconds()
        waited = request.after is not None or request.after_end is not None
        closed = self._workload.concurrency is not None
        due_s = max(request.due_s, t_s) if waited or closed else request.due_s
        transcript = RequestTranscript(request.key, Ending.COMPLETE, due_s, t_sent_s=t_s)
        self._transcripts[request.key] = transcript
        try:
            prompt = self._prompt_ids(request)
            params = _sampling_params(request)
            self._engine.submit(Request(self._id_prefix + request.key, prompt, params))
        except RequestRefused as refusal:
            transcript.ending, transcript.error = Ending.REFUSED, str(refusal)
            transcript.t_end_s = self._clock.seconds()
            return
        transcript.response_id = self._id_prefix + request.key
        transcript.prompt_token_ids = prompt
        transcript.usage = Usage(len(prompt), 0, 0)
        transcript.usages_seen = transcript.terminators = int(request.stream)
        self._live[request.key] = request
        self._open_choices[request.key] = params.n
        if request.cancel_after_tokens == 0:
            self._cancel(request.key, t_s)

    def _prompt_ids(self, request: WorkloadRequest) -> tuple[int, ...]:
        if request.prompt_ids is not None:
            return request.prompt_ids
        if request.prompt_text is None:
            raise RequestRefused("the engine takes no chat messages", field="messages")
        if self._encode is None:
            raise RequestRefused("no tokenizer was given for text prompts", field="prompt")
        return tuple(self._encode(request.prompt_text))

    # --- coming out ---------------------------------------------------------------------------

    def _note(self, event: TokenEvent, t_s: float) -> None:
        key = event.request_id.removeprefix(self._id_prefix)
        transcript = self._transcripts.get(key)
        if transcript is None or key not in self._live:
            return
        choice = transcript.choices.setdefault(event.choice, ChoiceTranscript())
        if event.prompt_logprobs is not None:
            transcript.prompt_logprobs = [p and p.logprob for p in event.prompt_logprobs]
        if event.token_id is not None:
            choice.chunks.append(self._chunk(key, event, event.token_id, t_s))
            self._count_token(key, transcript, event.cached_tokens)
        if event.error is not None:
            transcript.ending, transcript.error = Ending.SERVER_ERROR, event.error
        if event.finish_reason is not None:
            choice.finish_reasons.append(event.finish_reason.value)
            if event.finish_reason is FinishReason.ERROR:
                transcript.ending = Ending.SERVER_ERROR
            self._open_choices[key] -= 1
            if self._open_choices[key] == 0:
                self._end(key, t_s)
        cancel_at = self._workload_cancel(key)
        if key in self._live and cancel_at and self._token_events.get(key, 0) >= cancel_at:
            self._cancel(key, t_s)

    def _workload_cancel(self, key: str) -> int | None:
        request = self._live.get(key)
        return request.cancel_after_tokens if request is not None else None

    def _chunk(self, key: str, event: TokenEvent, token_id: int, t_s: float) -> TokenChunk:
        text = ""
        if self._decode is not None:
            place = (key, event.choice)
            if place not in self._texts:
                self._texts[place] = Detokenizer(self._decode)
            text = self._texts[place].add(token_id)
        told = event.logprobs
        return TokenChunk(
            t_s,
            text,
            (token_id,),
            None if told is None else (told.logprob,),
            None if told is None else ({str(i): value for i, value in told.top},),
            1,
        )

    def _count_token(self, key: str, transcript: RequestTranscript, cached_tokens: int) -> None:
        self._token_events[key] = self._token_events.get(key, 0) + 1
        usage = transcript.usage
        assert usage is not None  # noqa: S101  (set when it was submitted)
        transcript.usage = Usage(
            usage.prompt_tokens,
            usage.completion_tokens + 1,
            max(usage.cached_tokens or 0, cached_tokens),
        )

    def _cancel_late(self, t_s: float) -> None:
        for key, request in list(self._live.items()):
            sent_s = self._transcripts[key].t_sent_s or 0.0
            if request.cancel_after_s is not None and t_s - sent_s >= request.cancel_after_s:
                self._cancel(key, t_s)

    def _cancel(self, key: str, t_s: float) -> None:
        self._engine.cancel(self._id_prefix + key)
        transcript = self._transcripts[key]
        transcript.ending, transcript.error = Ending.CANCELLED, "cancelled by the workload"
        transcript.usage, transcript.usages_seen, transcript.terminators = None, 0, 0
        self._end(key, t_s)

    def _end(self, key: str, t_s: float) -> None:
        self._transcripts[key].t_end_s = t_s
        del self._live[key]


def _sampling_params(request: WorkloadRequest) -> SamplingParams:
    """OpenAI fields to engine parameters; temperature is 1 unless given, as the API says."""
    given: dict[str, Any] = {"temperature": 1.0}
    for name, value in request.params.items():
        if value is None or name in _WITHOUT_MEANING:
            continue
        name = "max_tokens" if name == "max_completion_tokens" else name
        if name not in _SAMPLING_FIELDS:
            raise RequestRefused(f"the engine has no parameter {name!r}", field=name)
        given[name] = tuple(value) if name == "stop_token_ids" else value
    if "logit_bias" in given:
        given["logit_bias"] = {int(k): float(v) for k, v in given["logit_bias"].items()}
    return SamplingParams(**given)
