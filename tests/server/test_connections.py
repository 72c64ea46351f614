"""Connections: who may ask, and what comes of garbage and of clients that never finish."""

from __future__ import annotations

import asyncio
import logging

import aiohttp
import pytest

from reference_engine.server.event_stream import EventStream
from reference_engine.server.limits import Limits
from reference_engine.server.text_codec import TextCodec
from tests.server.conftest import Running, running_server
from tests.server.fake_engine import FakeEngine


async def test_the_key_is_asked_for_everywhere_but_health(codec: TextCodec) -> None:
    async with running_server(codec, FakeEngine(), api_key="sesame") as running:
        for path in ("/v1/models", "/metrics"):
            async with running.client.get(running.url + path) as response:
                assert response.status == 401
                assert (await response.json())["error"]["code"] == "invalid_api_key"
        for key, status in (("sesame", 200), ("sesam", 401), ("", 401), ("sésame", 401)):
            headers = {"Authorization": f"Bearer {key}"}
            async with running.client.get(running.url + "/v1/models", headers=headers) as response:
                assert response.status == status
        async with running.client.get(running.url + "/health") as response:
            assert response.status == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"garbage\r\n\r\n",
        b"\x00\xff" * 100 + b"\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
    ],
)
async def test_garbage_on_the_socket_is_a_400_or_a_closed_connection(
    running: Running, raw: bytes
) -> None:
    port = int(running.url.rsplit(":", 1)[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    answer = await asyncio.wait_for(reader.read(), timeout=60)
    writer.close()
    if answer:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.split()[1] in {b"400", b"413", b"431"}
        assert b'"invalid_http"' in body
    status, _ = await running.post("/v1/completions", prompt=[1, 50])
    assert status == 200


async def test_a_client_gone_before_its_headers_leaves_no_traceback(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Hanging up is no error of the server, and a stranger must not be able to fill its log."""
    opened = EventStream.open

    async def hung_up(stream: EventStream) -> None:
        assert stream._request.transport is not None
        stream._request.transport.abort()
        await opened(stream)

    monkeypatch.setattr(EventStream, "open", hung_up)
    with pytest.raises(aiohttp.ClientError):
        await running.post("/v1/completions", prompt=[1, 50], stream=True)
    monkeypatch.undo()
    status, _ = await running.post("/v1/completions", prompt=[1, 50])
    assert status == 200
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


async def test_headers_that_never_end_are_given_up(codec: TextCodec) -> None:
    limits = Limits(idle_timeout_s=0.2)
    async with running_server(codec, FakeEngine(), limits=limits) as running:
        port = int(running.url.rsplit(":", 1)[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n")
        assert await asyncio.wait_for(reader.read(), timeout=60) == b""
        writer.close()


async def test_a_body_that_never_ends_is_a_408(codec: TextCodec) -> None:
    limits = Limits(body_timeout_s=0.1)
    async with running_server(codec, FakeEngine(), limits=limits) as running:
        port = int(running.url.rsplit(":", 1)[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
        assert b" 408 " in await asyncio.wait_for(reader.readline(), timeout=60)
        writer.close()
