"""The engine's own thread, and the bridge between it and the event loop.

The engine is plain single-threaded code. It lives in one thread that alternates between commands
(submit, cancel) and steps; nothing else ever touches it. News crosses to the event loop in one call
a step, however many requests were in the step. If the thread dies, everybody who waits is told.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Protocol

from reference_engine.request import Request, RequestRefused, TokenEvent
from reference_engine.server.errors import SERVER_ERROR, ApiError, unavailable
from reference_engine.server.mailbox import Mailbox

log = logging.getLogger("isobatch.server")


class EngineLike(Protocol):
    """What the server needs of an engine; `reference_engine.engine.Engine` is the real one."""

    def submit(self, request: Request) -> None:
        """Queue a request. Raises RequestRefused if it can never be served."""

    def cancel(self, request_id: str, choice: int | None = None) -> bool:
        """Drop a request, or one choice of it; False if it isn't there any more."""

    def step(self) -> Sequence[TokenEvent]:
        """Run one batch."""

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""

    @property
    def last_step(self) -> Any:
        """A record of the last step, for pictures."""

    def stats(self) -> Any:
        """Counters and gauges."""


class HostState(StrEnum):
    """The life of the engine thread."""

    STARTING = "starting"
    READY = "ready"
    STOPPED = "stopped"
    DEAD = "dead"


class EngineHost:
    """Owns the engine thread.

    ``mailboxes``: who waits for the events of which engine request.

    ``make_engine`` runs inside the thread, so loading a model blocks nobody. ``trace_steps`` keeps
    the records of so many last steps. All public methods are called on the event loop.
    """

    def __init__(self, make_engine: Callable[[], EngineLike], *, trace_steps: int = 0) -> None:
        self._make_engine = make_engine
        self._commands: queue.SimpleQueue[Callable[[EngineLike], None] | None] = queue.SimpleQueue()
        self.mailboxes: dict[str, Mailbox] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="isobatch-engine", daemon=True)
        self._ready: asyncio.Future[None] | None = None
        self.state = HostState.STARTING
        self.failure: BaseException | None = None
        self.stats: Any = None
        self.trace_steps = trace_steps
        self.steps: deque[Any] = deque(maxlen=trace_steps)

    async def start(self) -> None:
        """Start the thread and wait until the engine is built. Raises what building it raised."""
        self._loop = asyncio.get_running_loop()
        self._ready = self._loop.create_future()
        self._thread.start()
        await self._ready

    async def stop(self) -> None:
        """End the thread after the step it is in; waiting requests get an error."""
        self._commands.put(None)
        while self._thread.is_alive():
            await asyncio.sleep(0.005)

    @property
    def live_requests(self) -> int:
        """Requests that were submitted and have not ended."""
        return len(self.mailboxes)

    def lost(self, reason: str) -> ApiError:
        """The error of a request that the server, not the client, lost."""
        return ApiError(reason, status=500, kind=SERVER_ERROR, code="engine_error")

    async def submit(self, request: Request, mailbox: Mailbox) -> None:
        """Hand a request to the engine; its events arrive in ``mailbox``.

        Raises RequestRefused when the engine says so, ApiError 503 when it cannot answer.
        """
        if self.state is not HostState.READY or self._loop is None:
            raise unavailable(f"the engine is {self.state}")
        loop = self._loop
        accepted: asyncio.Future[None] = loop.create_future()
        self.mailboxes[request.request_id] = mailbox

        def command(engine: EngineLike) -> None:
            try:
                engine.submit(request)
            except RequestRefused as refused:
                loop.call_soon_threadsafe(_settle, accepted, refused)
            else:
                loop.call_soon_threadsafe(_settle, accepted, None)

        mailbox.watch(accepted)
        self._commands.put(command)
        try:
            await accepted
        except BaseException:
            self.cancel(request.request_id)
            raise

    def cancel(self, request_id: str) -> None:
        """Drop a request at once; nothing more of it is delivered. Harmless if it has ended."""
        if self.mailboxes.pop(request_id, None) is not None:
            self._commands.put(lambda engine: _discard(engine.cancel(request_id)))

    def cancel_choice(self, request_id: str, choice: int) -> None:
        """Drop one choice of a request whose other choices go on."""
        if request_id in self.mailboxes:
            self._commands.put(lambda engine: _discard(engine.cancel(request_id, choice)))

    def _run(self) -> None:
        try:
            engine = self._make_engine()
            self.stats = engine.stats()
            self._post(self._became_ready)
            self._serve(engine)
        except BaseException as failure:
            if self.state is HostState.READY:
                log.exception("the engine thread died")
            self.failure = failure
            self._post(self._ended, HostState.DEAD)
        else:
            self._post(self._ended, HostState.STOPPED)

    def _serve(self, engine: EngineLike) -> None:
        commands = self._commands
        while True:
            # Only what is there now: a flood of commands must not keep the batch from running.
            for _ in range(max(commands.qsize(), 0 if engine.has_work else 1)):
                command = commands.get()
                if command is None:
                    return
                command(engine)
                self.stats = engine.stats()
            if not engine.has_work:
                continue
            events = engine.step()
            stepped_s = time.monotonic()
            self.stats = engine.stats()
            if self.trace_steps and engine.last_step is not None:
                self.steps.append(engine.last_step)
            if events:
                self._post(self.deliver, events, stepped_s)

    def _post(self, function: Callable[..., None], *arguments: Any) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def _became_ready(self) -> None:
        self.state = HostState.READY
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def deliver(self, events: Sequence[TokenEvent], stepped_s: float) -> None:
        """Put the events of one step, which ended at ``stepped_s``, where they are waited for."""
        for event in events:
            mailbox = self.mailboxes.get(event.request_id)
            if mailbox is not None:
                mailbox.push(event, stepped_s)
                if mailbox.complete(event.request_id):
                    del self.mailboxes[event.request_id]

    def _ended(self, state: HostState) -> None:
        self.state = state
        if self._ready is not None and not self._ready.done() and self.failure is not None:
            self._ready.set_exception(self.failure)
        for mailbox in set(self.mailboxes.values()):
            mailbox.fail(unavailable("the engine stopped before this request was finished"))
        self.mailboxes.clear()


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if not future.done():
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


def _discard(_: bool) -> None:
    """Whether the request was still there makes no difference to whoever left it."""
