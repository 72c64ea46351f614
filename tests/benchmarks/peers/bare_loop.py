"""The floor: a bare uvloop protocol with httptools that stamps reads and parses no JSON.

It does nothing that a load generator must do (no transcript, no limits, no endings); its CPU time
for each event is what our client's is compared with. Run: ``python -m
tests.benchmarks.peers.bare_loop URL STREAMS REQUESTS``; prints one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from itertools import pairwise
from typing import Any

import httptools
import uvloop


class Bare(asyncio.Protocol):
    """Sends the same request again and again and notes when bodies came."""

    def __init__(self, payload: bytes, left: list[int], done: asyncio.Event) -> None:
        self.payload, self.left, self.done = payload, left, done
        self.reads: list[list[float]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.begin()

    def begin(self) -> None:
        if self.left[0] == 0:
            self.left[1] -= 1
            if self.left[1] == 0:
                self.done.set()
            return
        self.left[0] -= 1
        self.parser = httptools.HttpResponseParser(self)
        self.times: list[float] = [time.monotonic()]
        self.reads.append(self.times)
        self.transport.write(self.payload)

    def data_received(self, data: bytes) -> None:
        self.t = time.monotonic()
        self.parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self.times.append(self.t)

    def on_message_complete(self) -> None:
        asyncio.get_running_loop().call_soon(self.begin)


async def run(url: str, streams: int, requests: int) -> dict[str, float]:
    """Drive the server and measure this process."""
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps(
        {"model": "paced", "prompt": list(range(100)), "max_tokens": 51, "stream": True}
    ).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    left, done = [requests, streams], asyncio.Event()
    loop = asyncio.get_running_loop()
    cpu_s = time.process_time()
    made = [
        await loop.create_connection(
            lambda: Bare(head.encode() + body, left, done), host, int(port)
        )
        for _ in range(streams)
    ]
    await done.wait()
    cpu_s = time.process_time() - cpu_s
    ttfts = sorted(r[1] - r[0] for _, p in made for r in p.reads)
    gaps = sorted(b - a for _, p in made for r in p.reads for a, b in pairwise(r[1:]))
    events = sum(len(r) - 1 for _, p in made for r in p.reads)
    return {
        "ttft_mean_ms": sum(ttfts) / len(ttfts) * 1e3,
        "ttft_p99_ms": ttfts[int(0.99 * len(ttfts))] * 1e3,
        "gap_p99_ms": gaps[int(0.99 * len(gaps))] * 1e3,
        "events": events,
        "cpu_s": cpu_s,
        "cpu_us_per_event": cpu_s / events * 1e6,
    }


if __name__ == "__main__":
    print(json.dumps(uvloop.run(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))))
