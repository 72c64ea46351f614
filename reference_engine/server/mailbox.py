"""Where one HTTP request waits for the events of its engine requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping

from reference_engine.request import TokenEvent
from reference_engine.server.errors import ApiError


class Overflow(Exception):
    """More events wait than the limit allows: the client does not read."""


class Mailbox:
    """Events in order of arrival, for one reader. Used on the event loop only.

    ``max_events`` bounds what a reader that has stopped reading can cost.
    """

    def __init__(self, max_events: int) -> None:
        self._max_events = max_events
        self._events: deque[tuple[TokenEvent, float]] = deque()
        self._open_choices: dict[str, int] = {}
        self._wake: asyncio.Future[None] | None = None
        self._accepted: list[asyncio.Future[None]] = []
        self._failure: Exception | None = None

    def expect(self, choices: Mapping[str, int]) -> None:
        """The engine requests this mailbox serves, and the number of choices of each."""
        self._open_choices.update(choices)

    def watch(self, accepted: asyncio.Future[None]) -> None:
        """A submission that `fail` must settle too, so that nobody waits for a dead engine."""
        self._accepted = [a for a in self._accepted if not a.done()]
        self._accepted.append(accepted)

    def push(self, event: TokenEvent, stepped_s: float) -> None:
        """Add an event; ``stepped_s`` is the monotonic time at which its step ended."""
        if event.finish_reason is not None:
            self._open_choices[event.request_id] -= 1
        if len(self._events) >= self._max_events:
            self._failure = Overflow()
        else:
            self._events.append((event, stepped_s))
        self._notify()

    def complete(self, request_id: str) -> bool:
        """Whether every choice of the engine request has ended."""
        return self._open_choices[request_id] <= 0

    def fail(self, error: ApiError) -> None:
        """End the wait with an error, after the events that did arrive."""
        self._failure = error
        for accepted in self._accepted:
            if not accepted.done():
                accepted.set_exception(error)
        self._notify()

    async def take(self) -> list[tuple[TokenEvent, float]]:
        """All events that have arrived; waits for the first one. Raises what `fail` was given."""
        if isinstance(self._failure, Overflow):
            raise self._failure
        if not self._events:
            if self._failure is not None:
                raise self._failure
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            finally:
                self._wake = None
            return await self.take()
        taken = list(self._events)
        self._events.clear()
        return taken

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
