"""A server as narrow as `transformers serve`, for every command that sends requests.

It refuses a body with any field that it does not know, takes prompts as text only, ends its
streams without ``[DONE]``, and may keep its count of tokens to itself.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from reference_engine.probe import VARIANTS, Rule, decode_tokens, encode_text
from tests.client.scripted_server import END, HEAD, chunk, read_request, scripted_server

KNOWN = {"model", "prompt", "max_tokens", "temperature", "stream", "stream_options"}
PROBE = "isobatch-probe-plain-r2"


@dataclass
class Strict:
    """What the server allows, and the bodies that it answered."""

    known: set[str] = field(default_factory=lambda: set(KNOWN))
    model: str = PROBE
    tells_usage: bool = True
    early: bool = False
    cut: bool = False
    answered: list[dict[str, Any]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        if request.startswith(b"GET /v1/models"):
            writer.write(_json({"data": [{"id": self.model}]}, b"200 OK"))
        elif request.startswith(b"GET"):
            writer.write(_json({"detail": "Not Found"}, b"404 Not Found"))
        else:
            self.answer(json.loads(request.partition(b"\r\n\r\n")[2]), writer)
        await writer.drain()

    def answer(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        unknown = body.keys() - self.known
        if unknown or not isinstance(body["prompt"], str):
            reason = f"Unexpected fields: {sorted(unknown)}" if unknown else "prompt: not a string"
            writer.write(_json({"detail": reason}, b"422 Unprocessable"))
            return
        self.answered.append(body)
        pieces, finish = self.pieces(body)
        events: list[dict[str, Any]] = [
            {"id": "x", "choices": [{"index": 0, "text": text, "finish_reason": None}]}
            for text in pieces
        ]
        if not (self.cut and body["max_tokens"] > 4):
            last: dict[str, Any] = {"index": 0, "text": "", "finish_reason": finish}
            events.append({"id": "x", "choices": [last]})
            if self.tells_usage:
                prompt_tokens = len(body["prompt"]) + 1
                usage = {"prompt_tokens": prompt_tokens, "completion_tokens": len(pieces)}
                events[-1]["usage"] = usage
        writer.write(HEAD)
        for event in events:
            writer.write(chunk(b"data: " + json.dumps(event).encode() + b"\n\n"))
        writer.write(END)

    def pieces(self, body: dict[str, Any]) -> tuple[list[str], str]:
        """The texts of the answer's tokens, and its finish reason."""
        return ["tok "] * (2 if self.early else body["max_tokens"]), "length"


class RightStrict(Strict):
    """Gives the probe's right answers."""

    def pieces(self, body: dict[str, Any]) -> tuple[list[str], str]:
        config = next(c for c in VARIANTS.values() if c.name == self.model.rpartition("/")[2])
        rule, ids = Rule(config), encode_text(config, body["prompt"])
        answer = rule.generate(ids, body["max_tokens"], ignore_eos=body.get("ignore_eos", False))
        texts = [decode_tokens(config, [i]).decode() for i in answer.token_ids]
        return texts, answer.finish_reason


def _json(document: object, status: bytes) -> bytes:
    content = json.dumps(document).encode()
    head = b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(content) + content


@contextmanager
def serving(strict: Strict) -> Iterator[str]:
    """The URL of the server, which runs in a thread of its own."""
    ready, addresses = threading.Event(), []
    loop = asyncio.new_event_loop()

    async def run() -> None:
        async with scripted_server(strict.serve) as url:
            addresses.append(url)
            stop.append(asyncio.Event())
            ready.set()
            await stop[0].wait()

    stop: list[asyncio.Event] = []
    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    assert ready.wait(10)
    try:
        yield addresses[0]
    finally:
        loop.call_soon_threadsafe(stop[0].set)
        thread.join()
        loop.close()
