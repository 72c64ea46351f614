"""A whole workload on the wire: who is sent when, who waits for whom, and the transcript of all."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

from harness.client.clock import now
from harness.client.limits import Limits
from harness.client.openai_request import Caller
from harness.client.pool import ConnectionPool
from harness.client.request_run import RequestRun
from harness.transcript import RequestTranscript, Transcript
from workloads.workload import Workload, WorkloadRequest

BACKLOG_PIECES = 2_000_000
"""Unparsed pieces held at most, of requests that ended: about half a gigabyte of usual events."""


class WorkloadRun:
    """One run. Requests are sent when due; one that waits for tokens of another, after those.

    If the other ends before it has shown that many tokens, the waiting one is sent then: what it
    waited for can no longer happen, and a request that is never sent would tell nothing.
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
    ) -> None:
        """``on_end`` is told of each request that ended, before its backlog is parsed."""
        self._workload = workload
        self._caller = caller
        self._pool = pool
        self._limits = limits
        self._keep_raw = keep_raw
        self._on_end = on_end
        self._origin_s = 0.0
        self._runs: dict[str, RequestRun] = {}
        self._active: dict[str, RequestRun] = {}
        self._unsettled: list[RequestRun] = []
        self._unsettled_pieces = 0
        self._waiters: dict[str, list[tuple[int, asyncio.Event]]] = defaultdict(list)
        self._cancel_at = {
            r.key: r.cancel_after_tokens for r in workload.requests if r.cancel_after_tokens
        }

    async def finish(self) -> Transcript:
        """Run it to the end and return the transcript."""
        waits = {r.key: asyncio.Event() for r in self._workload.requests if r.after}
        for request in self._workload.requests:
            if request.after is not None:
                self._waiters[request.after.key].append((request.after.tokens, waits[request.key]))
        payloads = {r.key: self._caller.payload(r) for r in self._workload.requests}
        self._origin_s = now()
        watchdog = asyncio.create_task(self._watch())
        tasks = [
            asyncio.create_task(self._one(r, payloads[r.key], waits.get(r.key)))
            for r in self._workload.requests
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in [*tasks, watchdog]:
                task.cancel()
            await asyncio.gather(*tasks, watchdog, return_exceptions=True)
        duration_s = now() - self._origin_s
        self._settle()
        order = [r.key for r in self._workload.requests]
        return Transcript({key: self._runs[key].transcript for key in order}, duration_s)

    async def _one(
        self, request: WorkloadRequest, payload: bytes, wait: asyncio.Event | None
    ) -> None:
        listener = None
        if request.key in self._waiters or request.key in self._cancel_at:
            listener = self._listener(request.key)
        run = self._runs[request.key] = RequestRun(
            request, payload, self._pool, self._limits, self._origin_s, listener, self._keep_raw
        )
        delay_s = self._origin_s + request.due_s - now()
        if delay_s > 0:
            await asyncio.sleep(delay_s)
        if wait is not None:
            await wait.wait()
            run.transcript.t_due_s = max(request.due_s, now() - self._origin_s)
        self._active[request.key] = run
        timer = None
        if request.cancel_after_s is not None:
            timer = asyncio.get_running_loop().call_later(request.cancel_after_s, run.cancel)
        try:
            await run.perform()
        finally:
            if timer is not None:
                timer.cancel()
            del self._active[request.key]
        self._ended(request.key, run)

    def _listener(self, key: str) -> Callable[[int], None]:
        waiters, cancel_at = self._waiters.get(key, []), self._cancel_at.get(key)

        def on_tokens(count: int) -> None:
            for tokens, event in waiters:
                if count >= tokens:
                    event.set()
            if cancel_at is not None and count >= cancel_at:
                self._runs[key].cancel()

        return on_tokens

    def _ended(self, key: str, run: RequestRun) -> None:
        for _, event in self._waiters.get(key, ()):
            event.set()
        if self._on_end is not None:
            self._on_end(run.transcript)
        self._unsettled.append(run)
        self._unsettled_pieces += run.backlog_pieces
        if self._unsettled_pieces > BACKLOG_PIECES:
            self._settle()

    def _settle(self) -> None:
        for run in self._unsettled:
            run.settle()
        self._unsettled.clear()
        self._unsettled_pieces = 0

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._limits.tick_s)
            t_s = now()
            for run in list(self._active.values()):
                run.check_limits(t_s)
