"""SIGTERM lets running requests finish and ends with status 0; a second one ends at once."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from tests.server.events import parse_events
from tests.server.served_process import ServedProcess, served_process

FAST_STEP_S, SLOW_STEP_S = "0.01", "0.2"


@pytest.fixture
def quick() -> Iterator[ServedProcess]:
    """A server whose steps take 10 ms and which drains for up to 30 s."""
    with served_process("tests.server.fake_server", FAST_STEP_S, "30") as served:
        yield served


def _stream(url: str, session: aiohttp.ClientSession, tokens: int) -> Any:
    body = {"prompt": [1, 50], "max_tokens": tokens, "stream": True}
    return session.post(url + "/v1/completions", json=body)


async def _is_answered(url: str) -> bool:
    """Whether a new connection gets any answer at all."""
    try:
        async with aiohttp.ClientSession() as session, session.get(url + "/health"):
            return True
    except aiohttp.ClientConnectorError:
        return False


async def test_sigterm_lets_running_requests_finish(quick: ServedProcess) -> None:
    async with aiohttp.ClientSession() as session, _stream(quick.url, session, 60) as response:
        first = await response.content.readuntil(b"\n\n")
        quick.process.send_signal(signal.SIGTERM)
        events = parse_events(first + await response.read())
    assert len(events) == 61
    assert events[-1] == "[DONE]"
    assert quick.process.wait(timeout=60) == 0
    assert "drained: pages used 0, cached 0, free 1000, total 1000" in quick.stderr()


async def test_while_draining_nobody_new_is_served(quick: ServedProcess) -> None:
    async with aiohttp.ClientSession() as session, _stream(quick.url, session, 100) as response:
        await response.content.readuntil(b"\n\n")
        quick.process.send_signal(signal.SIGTERM)
        while await _is_answered(quick.url):  # until the signal is handled
            pass
        assert (await response.read()).endswith(b"[DONE]\n\n")


async def test_a_drain_is_bounded() -> None:
    with served_process("tests.server.fake_server", SLOW_STEP_S, "0.3") as served:
        async with aiohttp.ClientSession() as session, _stream(served.url, session, 500) as reply:
            first = await reply.content.readuntil(b"\n\n")
            served.process.send_signal(signal.SIGTERM)
            events = parse_events(first + await reply.read())
        assert events[-1]["error"]["code"] == "unavailable"
        assert served.process.wait(timeout=60) == 0


async def test_a_second_sigterm_ends_at_once(quick: ServedProcess) -> None:
    async with aiohttp.ClientSession() as session, _stream(quick.url, session, 4000) as response:
        await response.content.readuntil(b"\n\n")
        quick.process.send_signal(signal.SIGTERM)
        await response.content.readuntil(b"\n\n")
        t_second_s = time.monotonic()
        # The first signal may not have been handled yet; signals of one kind do not queue up.
        while quick.process.poll() is None:
            quick.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.01)
        assert time.monotonic() - t_second_s < 30
    assert quick.process.returncode == 130


def test_idle_servers_end_at_once(quick: ServedProcess) -> None:
    quick.process.send_signal(signal.SIGTERM)
    assert quick.process.wait(timeout=60) == 0
    assert "Traceback" not in quick.stderr()
