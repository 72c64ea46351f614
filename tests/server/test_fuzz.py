"""Thousands of nasty requests while good streams run: each is refused, none of them matters."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from reference_engine.probe import VARIANTS, Rule, export_probe
from reference_engine.server.text_codec import TextCodec
from tests.server import nasty
from tests.server.conftest import Running, running_server
from tests.server.events import parse_events
from tests.server.fake_engine import FakeEngine
from tests.server.idle import metrics, until_idle
from tests.server.served_process import ServedProcess, open_files, resident_bytes, served_process

CONFIG = VARIANTS["plain"]
GOOD_STREAMS = 8
AT_ONCE = 16


async def _flood(port: int, count: int, seed: int) -> Counter[str]:
    """``count`` nasty requests, some at once. Returns how each kind was answered."""
    seen: Counter[str] = Counter()
    draws = iter(range(count))

    async def client() -> None:
        for number in draws:
            draw = random.Random(seed * 1_000_003 + number)
            left = draw.random() < 0.1
            reply = await (nasty.leave_in_the_middle if left else nasty.one)(port, draw)
            assert reply.complaint is None, f"request {number}: {reply.complaint}"
            seen[f"{reply.what}: {reply.status}"] += 1

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    return seen


async def test_a_small_flood_over_the_fake_engine(codec: TextCodec) -> None:
    async with running_server(codec, FakeEngine()) as running:
        seen = await _flood(int(running.url.rsplit(":", 1)[1]), 300, seed=1)
        gauges = await until_idle(running.client, running.url)
        await _is_well(running)
    assert sum(seen.values()) == 300
    assert len(seen) > 10, seen
    assert gauges["isobatch_kv_pages_used"] == 0


async def _is_well(running: Running) -> None:
    status, _ = await running.post("/v1/completions", prompt=[1, 50])
    assert status == 200


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    """The real server on the plain probe, with so few pages that they hardly count as memory."""
    folder = export_probe(CONFIG, tmp_path_factory.mktemp("probe") / "checkpoint")
    options = ("--port", "0", "--num-pages", "256")
    with served_process("harness.cli", "serve", str(folder), *options) as served:
        yield served


async def _good_stream(
    session: aiohttp.ClientSession, url: str, seed: int, flooding: asyncio.Event
) -> int:
    """Streams, one after the other, each held against the integer rule, as long as it floods."""
    rule, draw, answered = Rule(CONFIG), random.Random(seed), 0
    while not flooding.is_set() or answered == 0:
        prompt = [CONFIG.bos_id, *(draw.randrange(4, 260) for _ in range(draw.randrange(1, 80)))]
        body: dict[str, Any] = {"prompt": prompt, "temperature": 0, "max_tokens": 24}
        body |= {"stream": True, "return_token_ids": True}
        async with session.post(url + "/v1/completions", json=body) as response:
            events = parse_events(await response.read())
        assert events.pop() == "[DONE]"
        ids = tuple(i for e in events for i in e["choices"][0]["token_ids"])
        assert ids == rule.generate(prompt, 24).token_ids
        answered += 1
    return answered


async def _storm(
    session: aiohttp.ClientSession, probe: ServedProcess, requests: int, *, seed: int
) -> tuple[int, int]:
    """Nasty requests while good streams run; how many were sent, and good answers given."""
    flooding = asyncio.Event()
    good = [
        asyncio.create_task(_good_stream(session, probe.url, stream, flooding))
        for stream in range(GOOD_STREAMS)
    ]
    seen = await _flood(int(probe.url.rsplit(":", 1)[1]), requests, seed=seed)
    flooding.set()
    return sum(seen.values()), sum(await asyncio.gather(*good))


@pytest.mark.slow
async def test_two_thousand_nasty_requests_while_good_streams_stay_exact(
    probe: ServedProcess,
) -> None:
    pid = probe.process.pid
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await _storm(session, probe, 400, seed=2)  # allocators and pages grow on first use
        await until_idle(session, probe.url)
        before_bytes, before_files = resident_bytes(pid), open_files(pid)
        sent, answered = await _storm(session, probe, 2_000, seed=3)
        gauges = await until_idle(session, probe.url)
        assert sent == 2_000
        assert answered >= GOOD_STREAMS
        assert gauges["isobatch_kv_pages_used"] == 0
        total = gauges["isobatch_kv_pages_total"]
        assert gauges["isobatch_kv_pages_free"] + gauges["isobatch_kv_pages_cached"] == total
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(60):
                while open_files(pid) > before_files + GOOD_STREAMS:
                    await metrics(session, probe.url)
        assert open_files(pid) <= before_files + GOOD_STREAMS
        assert resident_bytes(pid) - before_bytes < 64 * 1024 * 1024
