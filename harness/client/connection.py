"""One HTTP/1.1 connection over httptools' parser.

It gets each socket read with one time, taken before a byte is looked at: the kernel's arrival time
from a `StampedSocket`, or the clock at the top of `data_received` from an asyncio transport (TLS).
Everything that the read brought carries that time. Nothing here parses JSON or events.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol, cast

import httptools

from harness.client.clock import now
from harness.client.exchange import Exchange
from harness.client.limits import Limits
from harness.transcript import Ending


class Wire(Protocol):
    """What carries the bytes: a `StampedSocket` or an asyncio transport."""

    def write(self, data: bytes) -> None:
        """Send."""

    def close(self) -> None:
        """Hang up in good order."""

    def abort(self) -> None:
        """Hang up at once."""


class HttpConnection(asyncio.Protocol):
    """Carries one exchange at a time. ``exchanges`` counts those begun on it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._transport: Wire | None = None
        self._exchange: Exchange | None = None
        self._parser: Any = None
        self._t_read_s = 0.0
        self._header_bytes = 0
        self._headers_done = False
        self._message_done = False
        self._keep_alive = False
        self._bytes_allowed = 0
        self._keep_alive = False
        self._between_chunks = False
        self.exchanges = 0
        self.open = False

    # --- sending ------------------------------------------------------------------------------

    def begin(self, exchange: Exchange) -> None:
        """Send the exchange's payload; its ``done`` tells when the answer is complete."""
        if self._transport is None or not self.open:
            exchange.fail(now(), Ending.DISCONNECTED, "the idle connection was closed")
            return
        self._exchange = exchange
        self._parser = httptools.HttpResponseParser(self)
        self._header_bytes = 0
        self._bytes_allowed = self._limits.line_bytes
        self._headers_done = self._message_done = self._between_chunks = False
        self.exchanges += 1
        exchange.t_sent_s = now()
        self._transport.write(exchange.payload)

    def abandon(self) -> None:
        """Hang up at once: the client wants no more."""
        self._exchange = None
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Hang up in good order."""
        self.open = False
        if self._transport is not None:
            self._transport.close()

    # --- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        self.connected(cast(asyncio.Transport, transport))  # uvloop's is no subclass of it

    def connected(self, wire: Wire) -> None:
        """The socket is connected."""
        self._transport = wire
        self.open = True

    def data_received(self, data: bytes) -> None:
        """One socket read of an asyncio transport."""
        self.bytes_arrived(now(), data)

    def bytes_arrived(self, t_s: float, data: bytes) -> None:
        """One socket read, which arrived at ``t_s``."""
        exchange = self._exchange
        if exchange is None:  # nothing was asked: a 408 before hanging up, or nonsense
            self.close()
            return
        self._t_read_s = exchange.t_last_read_s = t_s
        if exchange.pieces is not None and self._between_chunks and self._one_chunk(exchange, data):
            return
        if not self._headers_done:
            self._header_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._exchange is exchange:
                self._fail(Ending.PROTOCOL_ERROR, f"not an HTTP answer: {error}")
            return
        if self._message_done:
            self._complete()
        elif not self._headers_done and self._header_bytes > self._limits.header_bytes:
            self._fail(
                Ending.PROTOCOL_ERROR, f"more than {self._limits.header_bytes} bytes of headers"
            )

    def eof_received(self) -> bool:
        """The server will send no more."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed, by either side."""
        self.open = False
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        t_s = now()
        if exc is None and self._headers_done and self._body_ends_with_connection(exchange):
            exchange.ended_by_eof = True
            exchange.finish(t_s)
        elif exchange.answered:
            exchange.fail(t_s, Ending.DISCONNECTED, f"the connection broke mid-answer{_why(exc)}")
        else:
            exchange.fail(
                t_s, Ending.DISCONNECTED, f"the connection closed without an answer{_why(exc)}"
            )

    # --- httptools callbacks ------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer after the body."""
        if not self._headers_done and self._exchange is not None:
            self._exchange.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_message_begin(self) -> None:
        """The first byte of an answer; after a whole answer, one that nobody asked for."""
        if self._message_done:
            self.open = False

    def on_headers_complete(self) -> None:
        """Status line and headers are read."""
        if self._exchange is None or self._headers_done:
            return
        status = self._parser.get_status_code()
        if status < 200 and status != 101:  # 100 Continue, 103 Early Hints: the answer follows
            self._exchange.headers.clear()
            return
        self._exchange.status = status
        self._headers_done = True

    def on_body(self, data: bytes) -> None:
        """A piece of the body, without the framing of chunks."""
        exchange = self._exchange
        if exchange is None or self._message_done:
            return
        exchange.body_bytes += len(data)
        if exchange.body_bytes > self._bytes_allowed:
            self._fail(Ending.PROTOCOL_ERROR, self._too_long())
        elif exchange.pieces is not None:
            exchange.pieces.append((self._t_read_s, data))
        else:
            exchange.sink(self._t_read_s, data)
        if b"\n" in data:
            self._bytes_allowed = exchange.body_bytes + self._limits.line_bytes

    def on_chunk_header(self) -> None:
        """A chunk begins."""
        self._between_chunks = False

    def on_chunk_complete(self) -> None:
        """A chunk has ended."""
        self._between_chunks = True

    def on_message_complete(self) -> None:
        """The answer is whole (or an interim one was)."""
        if self._headers_done and not self._message_done:
            self._message_done = True
            self._keep_alive = self._parser.should_keep_alive()

    def _one_chunk(self, exchange: Exchange, data: bytes) -> bool:
        """Whether ``data`` is exactly one whole chunk that ends a line, now put aside.

        Nearly every read of a stream is. The parser stands between two chunks and need not see
        it: where it stands is the same afterwards.
        """
        end = data.find(b"\r\n", 1, 10)
        if end < 0 or data[-3:] != b"\n\r\n":
            return False
        try:
            size = int(data[:end], 16)
        except ValueError:
            return False
        if size != len(data) - end - 4 or size == 0:
            return False
        exchange.body_bytes += size
        self._bytes_allowed = exchange.body_bytes + self._limits.line_bytes
        exchange.pieces.append((self._t_read_s, data[end + 2 : -2]))  # type: ignore[union-attr]
        return True

    # --- ends ---------------------------------------------------------------------------------

    def _complete(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        if not self._keep_alive:
            self.close()
        exchange.finish(self._t_read_s)

    def _fail(self, ending: Ending, sentence: str) -> None:
        exchange = self._exchange
        self.abandon()
        if exchange is not None:
            exchange.fail(self._t_read_s, ending, sentence)

    def _too_long(self) -> str:
        return f"a line of more than {self._limits.line_bytes} bytes"

    def _body_ends_with_connection(self, exchange: Exchange) -> bool:
        headers = exchange.headers
        chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        return not chunked and "content-length" not in headers


def _why(exc: Exception | None) -> str:
    return f": {exc}" if exc is not None else ""
