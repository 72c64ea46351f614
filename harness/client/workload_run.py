"""A whole workload on the wire: who is sent when, who waits for whom, and the transcript of all."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final

from harness.client.clock import now
from harness.client.limits import Limits
from harness.client.openai_request import Caller
from harness.client.pool import ConnectionPool
from harness.client.request_run import RequestRun
from harness.transcript import RequestTranscript, Transcript
from workloads.workload import Workload, WorkloadRequest

BACKLOG_PIECES: Final = 2_000_000
"""Unparsed pieces held at most, of requests that ended: about half a gigabyte of usual events."""

PREPARED: Final = 1024
"""Requests encoded before the run begins; later ones are encoded one ahead, while waiting."""

SAMPLE_EVERY_S: Final = 0.5
"""How often one short answer is parsed as it ends, so that live progress has gaps to show."""

SAMPLE_PIECES: Final = 256
"""Pieces of such an answer at most: well under a millisecond of parsing."""

SETTLE_EVERY_S: Final = 0.5
"""How long answers that ended wait to be parsed where they are wanted while the run goes on."""

SETTLE_STEP_S: Final = 0.001
"""The loop is not held up for longer at a time, unless one answer alone takes longer to parse."""

SETTLE_SHARE: Final = 0.1
"""Of one CPU at most, for parsing while requests are in flight; what is left over is done after."""


class WorkloadRun:
    """One run. Requests are sent when due; one that waits for tokens of another, after those.

    If the other ends before it has shown that many tokens, the waiting one is sent then: what it
    waited for can no longer happen, and a request that is never sent would tell nothing. In a
    closed loop, and after a trigger, a request's due time is when it became free to go.
    """

    def __init__(
        self,
        workload: Workload,
        caller: Caller,
        pool: ConnectionPool,
        limits: Limits,
        *,
        keep_raw: bool = True,
        on_end: Callable[[RequestTranscript], None] | None = None,
        on_drained: Callable[[], None] | None = None,
        on_settled: Callable[[RequestTranscript], None] | None = None,
        start_at_s: float | None = None,
        ends_by_closing: bool = False,
    ) -> None:
        """``on_end`` is told of each request that ended, before its backlog is parsed but for a
        sample of `SAMPLE_EVERY_S`;
        ``on_drained`` when all have ended and only parsing is left. ``on_settled`` is given each
        request once, whole, soon after it ended (`SETTLE_EVERY_S`, in slices of `SETTLE_STEP_S`);
        it must not raise. ``start_at_s`` is when to begin on the clock; None: when everything is
        prepared. ``ends_by_closing`` is as for `RequestRun`.
        """
        self._start_at_s = start_at_s
        self._ends_by_closing = ends_by_closing
        self._workload = workload
        self._caller = caller
        self._pool = pool
        self._limits = limits
        self._keep_raw = keep_raw
        self._on_end = on_end
        self._on_drained = on_drained
        self._on_settled = on_settled
        self._origin_s = 0.0
        self._runs: dict[str, RequestRun] = {}
        self._active: dict[str, RequestRun] = {}
        self._unsettled: deque[RequestRun] = deque()
        self._unsettled_pieces = 0
        self._sampled_s = 0.0
        self._token_waiters: dict[str, list[tuple[int, asyncio.Event]]] = defaultdict(list)
        self._ended_events = {
            r.after_end: asyncio.Event() for r in workload.requests if r.after_end
        }
        self._slots = asyncio.Semaphore(workload.concurrency) if workload.concurrency else None
        self._tasks: set[asyncio.Task[None]] = set()

    async def finish(self) -> Transcript:
        """Run it to the end and return the transcript."""
        waits: dict[str, asyncio.Event] = {}
        for request in self._workload.requests:
            if request.after is not None:
                waits[request.key] = asyncio.Event()
                waiter = (request.after.tokens, waits[request.key])
                self._token_waiters[request.after.key].append(waiter)
            elif request.after_end is not None:
                waits[request.key] = self._ended_events[request.after_end]
        aside = [asyncio.create_task(self._watch())]
        if self._on_settled is not None:
            aside.append(asyncio.create_task(self._settle_by_and_by()))
        try:
            await self._dispatch(waits)
            while self._tasks:
                await asyncio.gather(*self._tasks)
        finally:
            started = [*self._tasks, *aside]
            for task in started:
                task.cancel()
            await asyncio.gather(*started, return_exceptions=True)
            duration_s = now() - self._origin_s
            if self._on_drained is not None:
                self._on_drained()
            self._settle()
        transcripts = {r.key: self._runs[r.key].transcript for r in self._workload.requests}
        return Transcript(transcripts, duration_s, self._origin_s)

    async def _dispatch(self, waits: dict[str, asyncio.Event]) -> None:
        """Start every request when it is due and, in a closed loop, when there is room."""
        queue = deque(sorted(self._workload.requests, key=lambda r: r.due_s))
        encoded = deque((r, self._caller.payload(r)) for r in list(queue)[:PREPARED])
        for _ in encoded:
            queue.popleft()
        await self._pool.prepare()
        self._origin_s = now() if self._start_at_s is None else self._start_at_s
        await self._sleep_until(0.0)
        while encoded:
            request, payload = encoded.popleft()
            if queue:
                following = queue.popleft()
                encoded.append((following, self._caller.payload(following)))
            run = self._new_run(request, payload)
            wait = waits.get(request.key)
            if wait is None:
                await self._sleep_until(request.due_s)
                if self._slots is not None:
                    await self._slots.acquire()
                    run.transcript.t_due_s = max(request.due_s, now() - self._origin_s)
            task = asyncio.create_task(self._one(request, run, wait))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _sleep_until(self, due_s: float) -> None:
        # uvloop rounds a timer to the nearest millisecond, so it may ring early: never send early.
        while (delay_s := self._origin_s + due_s - now()) > 0:
            await asyncio.sleep(delay_s)

    def _new_run(self, request: WorkloadRequest, payload: bytes) -> RequestRun:
        listens = request.key in self._token_waiters or request.cancel_after_tokens
        run = self._runs[request.key] = RequestRun(
            request,
            payload,
            self._pool,
            self._limits,
            self._origin_s,
            self._listener(request) if listens else None,
            self._keep_raw,
            self._ends_by_closing,
        )
        return run

    async def _one(
        self, request: WorkloadRequest, run: RequestRun, wait: asyncio.Event | None
    ) -> None:
        if wait is not None:
            await wait.wait()
            await asyncio.sleep(request.think_s)
            await self._sleep_until(request.due_s)
            run.transcript.t_due_s = now() - self._origin_s
            if self._slots is not None:
                await self._slots.acquire()
        timer = None
        self._active[request.key] = run
        if request.cancel_after_s is not None:
            timer = asyncio.get_running_loop().call_later(request.cancel_after_s, run.cancel)
        try:
            await run.perform()
        except asyncio.CancelledError:
            run.interrupt()
            raise
        finally:
            if timer is not None:
                timer.cancel()
            del self._active[request.key]
            if self._slots is not None:
                self._slots.release()
            self._ended(request.key, run)

    def _listener(self, request: WorkloadRequest) -> Callable[[int], None]:
        waiters = self._token_waiters.get(request.key, [])
        cancel_at = request.cancel_after_tokens

        def on_tokens(count: int) -> None:
            for tokens, event in waiters:
                if count >= tokens:
                    event.set()
            if cancel_at is not None and count >= cancel_at:
                self._runs[request.key].cancel()

        return on_tokens

    def _ended(self, key: str, run: RequestRun) -> None:
        for _, event in self._token_waiters.get(key, ()):
            event.set()
        if key in self._ended_events:
            self._ended_events[key].set()
        if self._is_sample(run):
            run.settle()
        self._unsettled.append(run)
        self._unsettled_pieces += run.backlog_pieces
        if self._on_end is not None:
            self._on_end(run.transcript)
        if self._unsettled_pieces > BACKLOG_PIECES:
            self._settle()

    def _is_sample(self, run: RequestRun) -> bool:
        if self._on_end is None or not 0 < run.backlog_pieces <= SAMPLE_PIECES:
            return False
        t_s = now()
        due = t_s - self._sampled_s >= SAMPLE_EVERY_S
        if due:
            self._sampled_s = t_s
        return due

    def _settle(self, until_s: float = float("inf")) -> None:
        """Parse the answers that wait, in order of their ends, the first one in any case."""
        while self._unsettled:
            run = self._unsettled.popleft()
            self._unsettled_pieces -= run.backlog_pieces
            run.settle()
            if self._on_settled is not None:
                self._on_settled(run.transcript)
            if now() >= until_s:
                return

    async def _settle_by_and_by(self) -> None:
        while True:
            await asyncio.sleep(SETTLE_EVERY_S)
            while self._unsettled:
                started_s = now()
                self._settle(started_s + SETTLE_STEP_S)
                await asyncio.sleep((now() - started_s) * (1 / SETTLE_SHARE - 1))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._limits.tick_s)
            t_s = now()
            for run in list(self._active.values()):
                run.check_limits(t_s)
