"""Clients that hang up, engines that die, keys that are wrong: each ends its own request only."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import aiohttp
import pytest

from reference_engine.server.engine_host import HostState
from reference_engine.server.limits import Limits
from reference_engine.server.text_codec import TextCodec
from tests.server.conftest import Running, running_server, until
from tests.server.events import parse_events, sse_events
from tests.server.fake_engine import FakeEngine

BODY: dict[str, Any] = {"prompt": [1, 50], "max_tokens": 100}


def _gated() -> FakeEngine:
    return FakeEngine(gate=threading.Semaphore(0))


def _release(engine: FakeEngine, steps: int) -> None:
    assert engine.gate is not None
    engine.gate.release(steps)


async def _metric(running: Running, name: str) -> float:
    async with running.client.get(running.url + "/metrics") as response:
        lines = (await response.text()).splitlines()
    [line] = [line for line in lines if line.startswith(f"isobatch_{name} ")]
    return float(line.split()[1])


async def test_a_client_that_hangs_up_in_mid_stream_is_cancelled_at_once(codec: TextCodec) -> None:
    engine = _gated()
    async with running_server(codec, engine) as running:
        response = await running.client.post(
            running.url + "/v1/completions", json={**BODY, "stream": True}
        )
        _release(engine, 2)
        await response.content.readuntil(b"\n\n")
        response.close()
        await until(lambda: running.served.host.live_requests == 0)
        _release(engine, 1)
        await until(lambda: len(engine.cancelled) == 1)
        await until(lambda: running.served.host.stats.pages_used == 0)
        assert await _metric(running, "kv_pages_used") == 0
        assert running.served.ids.live == 0


async def test_a_client_that_hangs_up_before_a_whole_answer_is_cancelled(codec: TextCodec) -> None:
    engine = _gated()
    async with running_server(codec, engine) as running:
        call = asyncio.create_task(running.client.post(running.url + "/v1/completions", json=BODY))
        await until(lambda: len(engine.submitted) == 1)
        call.cancel()
        await until(lambda: running.served.host.live_requests == 0)
        _release(engine, 1)
        await until(lambda: len(engine.cancelled) == 1)


async def test_a_client_that_hangs_up_among_several_prompts_cancels_them_all(
    codec: TextCodec,
) -> None:
    engine = _gated()
    async with running_server(codec, engine) as running:
        body = {"prompt": [[1, 50], [1, 51]], "n": 2, "max_tokens": 50}
        call = asyncio.create_task(running.client.post(running.url + "/v1/completions", json=body))
        await until(lambda: running.served.host.live_requests == 2)
        _release(engine, 1)
        await until(lambda: len(engine.submitted) == 2)
        call.cancel()
        await until(lambda: running.served.host.live_requests == 0)
        _release(engine, 3)
        await until(lambda: len(engine.cancelled) == 2)


async def test_a_neighbour_that_hangs_up_changes_nothing(codec: TextCodec) -> None:
    engine = _gated()
    async with running_server(codec, engine) as running:
        stays = asyncio.create_task(
            sse_events(running, "/v1/completions", **BODY, return_token_ids=True)
        )
        await until(lambda: len(engine.submitted) == 1)
        leaves = asyncio.create_task(
            running.client.post(running.url + "/v1/completions", json={**BODY, "prompt": [1, 51]})
        )
        await until(lambda: running.served.host.live_requests == 2)
        _release(engine, 1)
        await until(lambda: len(engine.submitted) == 2)
        leaves.cancel()
        _release(engine, 200)
        events = await stays
    ids = [i for e in events[:-1] for i in e["choices"][0]["token_ids"]]
    assert ids == engine.script(engine.submitted[0], 0)


async def test_when_the_engine_dies_everybody_is_told_and_health_is_503(codec: TextCodec) -> None:
    engine = _gated()
    async with running_server(codec, engine) as running:
        streams = await running.client.post(
            running.url + "/v1/completions", json={**BODY, "stream": True}
        )
        whole = asyncio.create_task(running.post("/v1/completions", **BODY))
        await until(lambda: running.served.host.live_requests == 2)
        _release(engine, 1)
        await until(lambda: len(engine.submitted) == 2)
        engine.explode_in_step = RuntimeError("no more")
        _release(engine, 10)
        events = parse_events(await streams.read())
        assert events[-1]["error"]["code"] == "unavailable"
        status, answer = await whole
        assert (status, answer["error"]["code"]) == (503, "unavailable")
        assert running.served.host.state is HostState.DEAD
        async with running.client.get(running.url + "/health") as response:
            assert response.status == 503
            assert await response.json() == {"status": "dead"}
        status, _ = await running.post("/v1/completions", **BODY)
        assert status == 503


async def test_a_request_behind_a_dead_engine_does_not_hang(codec: TextCodec) -> None:
    engine = _gated()
    async with running_server(codec, engine) as running:
        first = asyncio.create_task(running.post("/v1/completions", **BODY))
        await until(lambda: len(engine.submitted) == 1)
        # The engine waits inside a step, so this one's submission is not answered yet.
        second = asyncio.create_task(running.post("/v1/completions", **BODY))
        await until(lambda: running.served.host.live_requests == 2)
        engine.explode_in_step = RuntimeError("no more")
        _release(engine, 1)
        assert [status for status, _ in await asyncio.gather(first, second)] == [503, 503]


async def test_an_engine_that_cannot_be_built_fails_the_start(codec: TextCodec) -> None:
    def broken() -> FakeEngine:
        raise ValueError("no weights")

    with pytest.raises(ValueError, match="no weights"):
        async with running_server(codec, FakeEngine(), make_engine=broken):
            pass


async def test_a_bug_in_one_handler_is_a_500_for_one_client(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def boom(*_: object, **__: object) -> None:
        raise RuntimeError("a bug, with the prompt: secret")

    with monkeypatch.context() as patch:
        patch.setattr(type(running.served.codec), "decoder", boom)
        status, answer = await running.post("/v1/completions", **BODY)
    assert status == 500
    assert answer["error"]["type"] == "server_error"
    assert "secret" not in str(answer)
    status, _ = await running.post("/v1/completions", **BODY)
    assert status == 200
    assert await _metric(running, "live_requests") == 0
    assert await _metric(running, "kv_pages_used") == 0


async def test_a_reader_that_stops_reading_is_dropped_and_others_go_on(codec: TextCodec) -> None:
    engine = _gated()
    limits = Limits(max_pending_events=128, write_stall_s=0.2)
    async with running_server(codec, engine, limits=limits) as running:
        port = int(running.url.rsplit(":", 1)[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        pad = "x" * 400
        body = (
            b'{"prompt": [1, 50], "max_tokens": 400, "n": 16, "stream": true, "request_id": "'
            + pad[:100].encode()
            + b'"}'
        )
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            + body
        )
        await reader.readuntil(b"\r\n\r\n")
        good = asyncio.create_task(sse_events(running, "/v1/completions", **BODY))
        await until(lambda: running.served.host.live_requests == 2)
        _release(engine, 1)
        await until(lambda: len(engine.submitted) == 2)
        _release(engine, 1000)
        events = await good
        assert events[-1] == "[DONE]"
        await until(lambda: running.served.host.live_requests == 0)
        writer.close()


async def test_two_clients_with_the_same_id_get_answers_of_their_own(codec: TextCodec) -> None:
    engine = _gated()
    async with running_server(codec, engine) as running:
        calls = [
            asyncio.create_task(
                running.post(
                    "/v1/completions",
                    prompt=[1, 50 + i],
                    max_tokens=3,
                    request_id="same",
                    return_token_ids=True,
                )
            )
            for i in range(3)
        ]
        _release(engine, 100)
        answers = [answer for _, answer in await asyncio.gather(*calls)]
    assert len({a["id"] for a in answers}) == 3
    by_prompt = {r.prompt_ids: engine.script(r, 0) for r in engine.submitted}
    for i, answer in enumerate(answers):
        assert answer["choices"][0]["token_ids"] == by_prompt[(1, 50 + i)]


async def test_steps_are_traced_when_asked(codec: TextCodec) -> None:
    async with running_server(codec, FakeEngine(), trace_steps=4) as running:
        _, answer = await running.post("/v1/completions", **BODY)
        async with running.client.get(running.url + "/debug/steps") as response:
            trace = await response.json()
    assert len(trace["steps"]) == 4
    assert trace["page_size"] == 16
    row = trace["steps"][0]["scheduled"][0]
    assert row["request_id"] == answer["id"]
    assert row["tokens"] == 1


async def test_there_are_no_debug_paths_unless_asked(running: Running) -> None:
    async with running.client.get(running.url + "/debug/steps") as response:
        assert response.status == 404


async def test_no_request_content_in_logs_unless_asked(
    codec: TextCodec, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    for asked in (False, True):
        caplog.clear()
        async with running_server(codec, FakeEngine(), log_requests=asked) as running:
            await running.post("/v1/completions", prompt="xyzzy-secret", max_tokens=1)
            await running.post("/v1/completions", prompt="xyzzy-secret", temperature="xyzzy-bad")
        assert ("xyzzy-secret" in caplog.text) is asked


def test_aiohttp_is_recent_enough_to_give_up_slow_headers() -> None:
    assert tuple(int(p) for p in aiohttp.__version__.split(".")[:2]) >= (3, 11)
