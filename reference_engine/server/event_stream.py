"""Server-sent events to one client, with a bound on how long and how much a slow one can hold."""

from __future__ import annotations

import asyncio

from aiohttp import web

from reference_engine.server.errors import ApiError

_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


class SlowReader(Exception):
    """The client took longer over one write than the limit allows."""


class EventStream:
    """One SSE response. Writes go to the socket at once; nothing is collected here."""

    def __init__(self, request: web.Request, response_id: str, *, write_stall_s: float) -> None:
        self._request = request
        self._response = web.StreamResponse(headers={**_HEADERS, "X-Request-Id": response_id})
        self._write_stall_s = write_stall_s

    async def open(self) -> None:
        """Send the status line and headers."""
        await self._response.prepare(self._request)

    async def send(self, events: bytes) -> None:
        """Write whole events. Raises SlowReader when the client has stopped reading."""
        try:
            async with asyncio.timeout(self._write_stall_s):
                await self._response.write(events)
        except TimeoutError:
            raise SlowReader from None

    async def fail(self, error: ApiError) -> None:
        """Tell the client, inside the stream, that its request failed; no ``[DONE]`` follows."""
        await self.send(b"data: " + error.body() + b"\n\n")

    async def close(self) -> web.StreamResponse:
        """End the response."""
        await self._response.write_eof()
        return self._response

    def abort(self) -> web.StreamResponse:
        """Close the connection without ceremony: a full buffer would only delay it."""
        if self._request.transport is not None:
            self._request.transport.abort()
        return self._response
