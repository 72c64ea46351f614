"""Nasty clients: each one does something wrong on a socket of its own and says what came back."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.server.test_bad_requests import WRONG_FIELDS

LIMIT_S = 60.0
PATHS = ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize")


@dataclass(frozen=True)
class Reply:
    """What a nasty client got. ``status`` is None when the connection was closed without answer."""

    what: str
    status: int | None
    body: bytes = b""

    @property
    def complaint(self) -> str | None:
        """Why this is no proper answer to a bad request, or None."""
        if self.status is None:
            return None
        if not 400 <= self.status < 500:
            return f"{self.what}: status {self.status}: {self.body[:200]!r}"
        try:
            error = json.loads(self.body)["error"]
        except (ValueError, KeyError, TypeError):
            return f"{self.what}: {self.status} without an error object: {self.body[:200]!r}"
        if set(error) != {"message", "type", "param", "code"} or not error["message"]:
            return f"{self.what}: not the API's error object: {error}"
        return None


async def exchange(port: int, what: str, raw: bytes, *, half_close: bool = False) -> Reply:
    """Send bytes, read one answer. Raises AssertionError when none comes in `LIMIT_S`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(LIMIT_S):
            writer.write(raw)
            if half_close:
                writer.write_eof()
            return await _reply(reader, what)
    except ConnectionError:
        return Reply(what, None)
    except TimeoutError:
        raise AssertionError(f"{what}: no answer in {LIMIT_S} s to {raw[:300]!r}") from None
    finally:
        writer.close()


async def _reply(reader: asyncio.StreamReader, what: str) -> Reply:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return Reply(what, None)
    status = int(head.split(b" ", 2)[1])
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    if b"content-length" not in fields:
        return Reply(what, status)
    return Reply(what, status, await reader.readexactly(int(fields[b"content-length"])))


def post(path: str, body: bytes, *headers: bytes) -> bytes:
    """The bytes of an honest POST, whatever its body."""
    lines = [
        f"POST {path} HTTP/1.1".encode(),
        b"Host: x",
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(body),
        *headers,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def wrong_field(draw: random.Random) -> tuple[str, bytes]:
    """A good body with one wrong field."""
    name, value = draw.choice(WRONG_FIELDS)
    body = {"prompt": [1, 50], name: value, "stream": draw.random() < 0.5}
    if name == "stream_options":
        body["stream"] = False
    if name == "stream":
        body["stream"] = value
    return f"wrong {name}", post("/v1/completions", json.dumps(body).encode())


def any_json(draw: random.Random, depth: int = 0) -> Any:
    """A random JSON value."""
    leaves: list[Callable[[], Any]] = [
        lambda: None,
        lambda: draw.random() < 0.5,
        lambda: draw.choice([0, -1, 1, 2**31, 2**63, -(2**64), 10**40]),
        lambda: draw.choice([0.5, -0.0, 1e308, 1e-300]),
        lambda: "".join(
            chr(draw.choice([65, 0x7F, 0, 0xE9, 0x1F600])) for _ in range(draw.randrange(9))
        ),
    ]
    kind = draw.randrange(7 if depth < 4 else 5)
    if kind < 5:
        return leaves[kind]()
    size = draw.randrange(5)
    if kind == 5:
        return [any_json(draw, depth + 1) for _ in range(size)]
    return {str(any_json(draw, 9))[:20]: any_json(draw, depth + 1) for _ in range(size)}


def random_body(draw: random.Random) -> tuple[str, bytes]:
    """JSON of the wrong shape; an unknown field makes sure that it is wrong."""
    body = any_json(draw)
    if isinstance(body, dict):
        body["nobody knows this"] = any_json(draw)
    return "random JSON", post(draw.choice(PATHS), json.dumps(body).encode())


def broken_json(draw: random.Random) -> tuple[str, bytes]:
    """Bodies that are no JSON: cut, too deep, not UTF-8, with numbers that JSON does not have."""
    good = json.dumps({"prompt": [1, 50], "max_tokens": 3}).encode()
    bodies = [
        b"",
        good[: draw.randrange(1, len(good))],
        b"[" * draw.randrange(2_000, 50_000),
        b'{"prompt":' * draw.randrange(1_100, 5_000),
        good[:-1] + b',"temperature":NaN}',
        good[:-1] + b',"temperature":-Infinity}',
        b'{"prompt":"' + bytes(draw.randrange(128, 256) for _ in range(9)) + b'"}',
        bytes(draw.randrange(256) for _ in range(draw.randrange(1, 200))) + b"{",
    ]
    return "broken JSON", post(draw.choice(PATHS), draw.choice(bodies))


def too_long(draw: random.Random) -> tuple[str, bytes]:
    """Prompts beyond the context, as text or ids; bodies beyond the limit by their own claim."""
    kind = draw.randrange(3)
    if kind == 0:
        return "long ids", post("/v1/completions", json.dumps({"prompt": [1] * 9_000}).encode())
    if kind == 1:
        return "long text", post("/v1/completions", json.dumps({"prompt": "a" * 9_000}).encode())
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{"
    return "huge claim", head


def garbage(draw: random.Random) -> tuple[str, bytes]:
    """Bytes that are no HTTP."""
    choices = [
        bytes(draw.randrange(256) for _ in range(draw.randrange(1, 400))) + b"\r\n\r\n",
        b"GET /health HTTP/7.3\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: minus one\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        post("/v1/completions", b"no gzip", b"Content-Encoding: gzip"),
        post("/v1/completions", gzip.compress(b" " * 9_000_000), b"Content-Encoding: gzip"),
        post("/v1/completions", b"{}", b"Expect: miracles"),
        b"GET / HTTP/1.1\r\n" + b"X-Y: " + b"z" * 9_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 60 + b"\r\n\r\n",
    ]
    return "garbage", draw.choice(choices)


def wrong_path(draw: random.Random) -> tuple[str, bytes]:
    """Paths and methods that the server does not have."""
    line = draw.choice([b"DELETE /v1/models", b"GET /v1/completions", b"GET /%2e%2e/etc/passwd"])
    return "wrong path", line + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"


KINDS = (wrong_field, wrong_field, random_body, broken_json, too_long, garbage, wrong_path)


async def one(port: int, draw: random.Random) -> Reply:
    """One nasty client of a random kind; some of them close their half of the connection."""
    what, raw = draw.choice(KINDS)(draw)
    # Garbage may promise more than it sends, so the client says that this was all.
    half_close = what == "garbage" and (draw.random() < 0.5 or b"\r\n\r\n" not in raw)
    return await exchange(port, what, raw, half_close=half_close)


async def leave_in_the_middle(port: int, draw: random.Random) -> Reply:
    """Send part of a good request, or all of it, and go away without reading."""
    body = json.dumps({"prompt": [1, 50, 51], "max_tokens": 64, "stream": True}).encode()
    raw = post("/v1/completions", body)
    cut = draw.choice([draw.randrange(1, len(raw)), len(raw)])
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw[:cut])
    await writer.drain()
    if draw.random() < 0.5:
        writer.transport.abort()
    else:
        writer.close()
    return Reply("left", None)
