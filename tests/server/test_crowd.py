"""Many clients at once: some hang up, some stop reading; everybody else gets an exact answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import aiohttp
import pytest

from reference_engine.probe import VARIANTS, Rule, export_probe
from reference_engine.request import Request, SamplingParams
from reference_engine.server.text_codec import TextCodec
from tests.server.conftest import running_server
from tests.server.events import parse_events
from tests.server.fake_engine import FakeEngine, counting
from tests.server.idle import until_idle
from tests.server.nasty import post
from tests.server.served_process import ServedProcess, resident_bytes, served_process

CONFIG = VARIANTS["eos"]
Expected = Callable[[list[int], int], Sequence[int]]


async def _crowd(
    url: str, *, clients: int, requests: int, expected: Expected, max_tokens: int = 12
) -> Counter[str]:
    """``requests`` requests by ``clients`` clients at once. Returns how they ended.

    One in ten hangs up in mid-stream, one in ten at once, one in ten wants its answer in one piece.
    """
    ended: Counter[str] = Counter()
    numbers = iter(range(requests))
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def client() -> None:
            for number in numbers:
                ended[await _one(session, url, random.Random(number), expected, max_tokens)] += 1

        await asyncio.gather(*(client() for _ in range(clients)))
        gauges = await until_idle(session, url)
    held = gauges["isobatch_kv_pages_free"] + gauges["isobatch_kv_pages_cached"]
    assert held == gauges["isobatch_kv_pages_total"], "pages are missing"
    return ended


async def _one(
    session: aiohttp.ClientSession,
    url: str,
    draw: random.Random,
    expected: Expected,
    max_tokens: int,
) -> str:
    prompt = [1, *(draw.randrange(4, 260) for _ in range(draw.randrange(40)))]
    tokens = draw.randrange(1, max_tokens + 1)
    way = draw.choice(["stream"] * 7 + ["whole", "hang up", "hang up at once"])
    body = {"prompt": prompt, "temperature": 0, "max_tokens": tokens, "return_token_ids": True}
    if way != "whole":
        body["stream"] = True
    async with session.post(url + "/v1/completions", json=body) as response:
        assert response.status == 200, await response.text()
        if way == "hang up at once":
            response.close()
            return way
        if way == "hang up":
            await response.content.readuntil(b"\n\n")
            response.close()
            return way
        raw = await response.read()
    if way == "whole":
        ids = json.loads(raw)["choices"][0]["token_ids"]
    else:
        events = parse_events(raw)
        assert events.pop() == "[DONE]"
        ids = [i for e in events for i in e["choices"][0]["token_ids"]]
    assert list(ids) == list(expected(prompt, tokens))
    return way


async def test_a_crowd_over_the_fake_engine(codec: TextCodec) -> None:
    def expected(prompt: list[int], tokens: int) -> Sequence[int]:
        return counting(Request("", tuple(prompt), SamplingParams(max_tokens=tokens)), 0)

    async with running_server(codec, FakeEngine()) as running:
        ended = await _crowd(running.url, clients=64, requests=400, expected=expected)
    assert sum(ended.values()) == 400
    assert min(ended[way] for way in ("stream", "whole", "hang up", "hang up at once")) > 20


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    """The real server on a probe that ends answers by itself, with a pool that is too small."""
    folder = export_probe(CONFIG, tmp_path_factory.mktemp("probe") / "checkpoint")
    options = ("--port", "0", "--num-pages", "160", "--write-stall-s", "2", "--drain-s", "60")
    with served_process("harness.cli", "serve", str(folder), *options) as served:
        yield served


def _rule(prompt: list[int], tokens: int) -> Sequence[int]:
    return Rule(CONFIG).generate(prompt, tokens).token_ids


@pytest.mark.slow
async def test_two_thousand_requests_of_256_clients_are_exact_or_gone(probe: ServedProcess) -> None:
    ended = await _crowd(probe.url, clients=256, requests=2_000, expected=_rule)
    assert sum(ended.values()) == 2_000
    assert min(ended[way] for way in ("stream", "whole", "hang up", "hang up at once")) > 100


def _silent_reader(port: int, raw: bytes) -> socket.socket:
    """Asks and never reads; its receive buffer is small, so the server soon has to wait."""
    silent = socket.socket()
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    silent.connect(("127.0.0.1", port))
    silent.sendall(raw)
    return silent


@pytest.mark.slow
async def test_readers_that_stop_reading_cost_bounded_memory_and_time(probe: ServedProcess) -> None:
    port = int(probe.url.rsplit(":", 1)[1])
    body = {"prompt": [1, 50], "max_tokens": 1_000, "ignore_eos": True, "stream": True}
    raw = post("/v1/completions", json.dumps(body | {"logprobs": 20}).encode())
    before_bytes = resident_bytes(probe.process.pid)
    async with aiohttp.ClientSession() as session:
        before = await until_idle(session, probe.url)
        with contextlib.ExitStack() as sockets:
            for _ in range(8):
                sockets.enter_context(_silent_reader(port, raw))
            ended = await _crowd(probe.url, clients=8, requests=40, expected=_rule)
            after = await until_idle(session, probe.url)
    assert sum(ended.values()) == 40
    generated = "isobatch_generation_tokens_total"
    assert after[generated] - before[generated] < 8 * 1_000, "nobody was dropped"
    assert resident_bytes(probe.process.pid) - before_bytes < 64 * 1024 * 1024
