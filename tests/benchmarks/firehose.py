"""A server that answers every completion with the same bytes at once: what a client can take.

It parses nothing but the length of a request, and writes a whole streamed answer with one call, so
that next to nothing of the machine is spent on it. Run: ``python -m tests.benchmarks.firehose
EVENTS``; prints its URL and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any, Final

import uvloop

_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_MODELS: Final = json.dumps({"object": "list", "data": [{"id": "firehose"}]}).encode()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(document: Any) -> bytes:
    return _chunk(b"data: %s\n\n" % json.dumps(document).encode())


def answer(events: int) -> bytes:
    """One whole answer: ``events`` events of one token, usage, terminator; chunked, kept alive."""
    about = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "firehose"}
    parts = [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    ]
    for index in range(events):
        reason = "length" if index == events - 1 else None
        choice = {"index": 0, "text": "a", "token_ids": [100], "finish_reason": reason}
        parts.append(_event({**about, "choices": [choice]}))
    usage = {"prompt_tokens": 100, "completion_tokens": events, "total_tokens": 100 + events}
    parts.append(_event({**about, "choices": [], "usage": usage}))
    return b"".join([*parts, _chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n"])


class Firehose(asyncio.Protocol):
    """One connection."""

    def __init__(self, whole: bytes) -> None:
        self._whole = whole
        self._kept = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._kept += data
        while b"\r\n\r\n" in self._kept:
            head, _, rest = self._kept.partition(b"\r\n\r\n")
            found = _LENGTH.search(head)
            length = int(found.group(1)) if found else 0
            if len(rest) < length:
                return
            self._kept = rest[length:]
            self._transport.write(self._whole if head.startswith(b"POST") else _models(head))


def _models(head: bytes) -> bytes:
    found = b" /v1/models " in head
    body, status = (_MODELS, b"200 OK") if found else (b"{}", b"404 Not Found")
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    return b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n%s%s" % (status, length, body)


async def serve(events: int) -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    whole = answer(events)
    server = await loop.create_server(lambda: Firehose(whole), "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
