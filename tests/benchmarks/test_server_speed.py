"""What the HTTP server lets through: the whole of it on a probe, and its own cost a token.

Times depend on the machine; ``make bench`` prints tokens a second in the extra columns.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from reference_engine.probe import VARIANTS, export_probe
from tests.server.served_process import ServedProcess, served_process

STREAMS = 16
TOKENS = 64
LENGTHS = (1, 5, 16, 17, 33, 63, 64, 100)


async def _streams(url: str) -> int:
    """Run all streams at once; returns the number of token events that came."""
    draw = random.Random(0)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def one(length: int) -> int:
            prompt = [1, *(draw.randrange(4, 260) for _ in range(length - 1))]
            body: dict[str, Any] = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
            body |= {"ignore_eos": True, "stream": True}
            async with session.post(url + "/v1/completions", json=body) as response:
                return (await response.read()).count(b'"index"')

        lengths = [LENGTHS[i % len(LENGTHS)] for i in range(STREAMS)]
        return sum(await asyncio.gather(*map(one, lengths)))


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    """`isobatch serve` on the plain probe."""
    folder = export_probe(VARIANTS["plain"], tmp_path_factory.mktemp("probe") / "checkpoint")
    with served_process("harness.cli", "serve", str(folder), "--port", "0") as served:
        yield served


@pytest.fixture(scope="module")
def no_model() -> Iterator[ServedProcess]:
    """The same server over an engine whose steps take no time."""
    with served_process("tests.server.fake_server", "0", "30") as served:
        yield served


def _measure(benchmark: Any, url: str) -> None:
    asyncio.run(_streams(url))  # warm-up
    tokens = benchmark.pedantic(lambda: asyncio.run(_streams(url)), rounds=3)
    assert tokens == STREAMS * TOKENS
    benchmark.extra_info["output_tokens_per_s"] = round(tokens / benchmark.stats["mean"])


def test_sixteen_ragged_streams_of_the_probe(benchmark: Any, probe: ServedProcess) -> None:
    _measure(benchmark, probe.url)


def test_sixteen_streams_without_a_model(benchmark: Any, no_model: ServedProcess) -> None:
    _measure(benchmark, no_model.url)
