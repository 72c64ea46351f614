"""Dead and hostile servers: a typed ending each, in bounded time and memory, and no exception."""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
import time

import pytest

from harness.client.limits import Limits
from harness.targets.http import HttpTarget
from harness.transcript import Ending, RequestTranscript
from tests.client.scripted_server import (
    DONE,
    END,
    HEAD,
    TOKEN,
    Script,
    chunk,
    read_request,
    saying,
    scripted_server,
)
from workloads.workload import Workload, WorkloadRequest

BOUND_S = 60.0
"""Far beyond every limit below, on a slow machine too; without limits these runs never end."""

SHORT = Limits(
    connect_s=0.3,
    first_token_s=0.2,
    idle_s=0.2,
    total_s=1.0,
    header_bytes=4096,
    line_bytes=100_000,
    body_bytes=1_000_000,
)


def request(key: str = "a", **fields: object) -> WorkloadRequest:
    return WorkloadRequest(key, prompt_ids=(1,), params={"max_tokens": 2}, **fields)  # type: ignore[arg-type]


async def ask(script: Script, *, limits: Limits = SHORT, **fields: object) -> RequestTranscript:
    async with scripted_server(script) as url:
        target = HttpTarget(url, model="m", limits=limits)
        started = time.monotonic()
        transcript = await target.run(Workload((request(**fields),)))
        assert time.monotonic() - started < BOUND_S, "a run ends in bounded time"
        await target.close()
        return transcript["a"]


WHOLE = HEAD + chunk(TOKEN) + chunk(TOKEN) + chunk(DONE) + END


@pytest.mark.parametrize(
    ("answer", "ending", "sentence"),
    [
        (b"", Ending.DISCONNECTED, "without an answer"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", Ending.PROTOCOL_ERROR, "not an HTTP answer"),
        (b"\x00\x01\x02" * 50, Ending.PROTOCOL_ERROR, "not an HTTP answer"),
        (HEAD[:30], Ending.DISCONNECTED, "mid-answer"),
        (HEAD + chunk(TOKEN), Ending.DISCONNECTED, "mid-answer"),
        (HEAD + chunk(TOKEN) + END, Ending.DISCONNECTED, r"\[DONE\]"),
        (HEAD + chunk(TOKEN[:20]) + END, Ending.DISCONNECTED, r"\[DONE\]"),
        (HEAD + b"zz\r\n", Ending.PROTOCOL_ERROR, "not an HTTP answer"),
        (HEAD + chunk(b"data: {nonsense\n\n") + END, Ending.PROTOCOL_ERROR, "not JSON"),
        (HEAD + chunk(b"data: \xff\xfe\n\n") + END, Ending.PROTOCOL_ERROR, "not JSON"),
        (HEAD + chunk(b"data: [1]\n\n") + END, Ending.PROTOCOL_ERROR, "object expected"),
        (HEAD + chunk(b'data: {"choices": 7}\n\n') + END, Ending.PROTOCOL_ERROR, "not a list"),
        (
            HEAD + chunk(TOKEN) + chunk(b'data: {"error": {"message": "boom"}}\n\n' + DONE) + END,
            Ending.SERVER_ERROR,
            "boom",
        ),
        (
            HEAD + chunk(TOKEN) + chunk(b"event: error\ndata: went wrong\n\n" + DONE) + END,
            Ending.SERVER_ERROR,
            "went wrong",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<hi>",
            Ending.PROTOCOL_ERROR,
            "text/html came",
        ),
        (
            b"HTTP/1.1 307 Go\r\nLocation: http://else/\r\nContent-Length: 0\r\n\r\n",
            Ending.PROTOCOL_ERROR,
            "sends us to http://else/",
        ),
        (
            b'HTTP/1.1 429 No\r\nContent-Length: 27\r\n\r\n{"error":{"message":"slow"}}',
            Ending.REFUSED,
            "slow|message",
        ),
        (b"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\ndown", Ending.SERVER_ERROR, "down"),
        (b"HTTP/1.1 204 Empty\r\n\r\n", Ending.PROTOCOL_ERROR, "204"),
        (b"HTTP/1.1 101 Up\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", None, ""),
    ],
)
async def test_bad_answers_are_typed(answer: bytes, ending: Ending | None, sentence: str):
    got = await ask(saying(answer))
    assert got.ending is not Ending.COMPLETE
    if ending is not None:
        assert got.ending is ending, got.error
        assert re.search(sentence, got.error or ""), got.error


async def test_an_error_event_is_a_failure_even_after_good_tokens_and_the_tokens_are_kept():
    boom = chunk(b'data: {"error": {"message": "boom"}}\n\n')
    got = await ask(saying(HEAD + chunk(TOKEN) + boom + chunk(DONE) + END))
    assert got.ending is Ending.SERVER_ERROR
    assert got.first.text == "t"


async def test_a_compressed_answer_is_refused_by_name():
    body = gzip.compress(TOKEN + DONE)
    head = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    got = await ask(saying(head + chunk(body) + END))
    assert got.ending is Ending.PROTOCOL_ERROR
    assert "gzip" in (got.error or "")


async def test_trailers_comments_and_interim_answers_are_no_obstacle():
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n"
    body = chunk(b": keep-alive\n\n") + chunk(TOKEN + TOKEN) + chunk(DONE)
    got = await ask(saying(interim + HEAD + body + b"0\r\nX-Trailer: 1\r\n\r\n"))
    assert got.ending is Ending.COMPLETE, got.error
    assert got.first.token_ids == (7, 7)


async def test_http_1_0_answers_end_with_the_connection():
    head = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    assert (await ask(saying(head + TOKEN + DONE))).ending is Ending.COMPLETE
    assert (await ask(saying(head + TOKEN))).ending is Ending.DISCONNECTED


async def test_a_server_that_never_answers_is_given_up_in_time():
    got = await ask(saying(b"", then_close=False))
    assert got.ending is Ending.TIMEOUT
    assert "no token within" in (got.error or "")


async def test_a_stream_that_falls_silent_is_given_up_and_what_came_is_kept():
    got = await ask(saying(HEAD + chunk(TOKEN), then_close=False))
    assert got.ending is Ending.TIMEOUT
    assert "mid-stream" in (got.error or "")
    assert got.first.token_ids == (7,)


async def test_keep_alive_comments_do_not_hold_a_request_for_ever():
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HEAD + chunk(TOKEN))
        while True:
            writer.write(chunk(b": ping\n\n"))
            await writer.drain()
            await asyncio.sleep(0.02)

    got = await ask(drip)
    assert got.ending is Ending.TIMEOUT
    assert "not finished" in (got.error or "")


async def test_tokens_that_never_end_are_given_up_in_time_and_those_that_came_are_kept():
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HEAD)
        while True:
            writer.write(chunk(TOKEN))
            await writer.drain()
            await asyncio.sleep(0.002)

    got = await ask(babble)
    assert got.ending is Ending.TIMEOUT
    assert "not finished 1 s after sending" in (got.error or "")
    assert len(got.first.token_ids) > 2


async def test_a_server_that_says_done_but_holds_the_line_is_complete():
    got = await ask(
        saying(HEAD + chunk(TOKEN) + chunk(DONE), then_close=False), limits=Limits(idle_s=30.0)
    )
    assert got.ending is Ending.COMPLETE, got.error
    assert got.t_end_s is not None
    assert got.t_last_s is not None
    assert got.t_end_s - got.t_last_s < 0.9, (
        "the end is when the last byte came, not when we gave up waiting"
    )


async def test_endless_headers_are_cut_off():
    async def headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-More: 1\r\n" * 100)
            await writer.drain()

    got = await ask(headers)
    assert got.ending is Ending.PROTOCOL_ERROR
    assert "headers" in (got.error or "")


async def test_an_endless_line_is_cut_off():
    async def line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HEAD + chunk(b"data: "))
        while True:
            writer.write(chunk(b"x" * 10_000))
            await writer.drain()

    got = await ask(line)
    assert got.ending is Ending.PROTOCOL_ERROR
    assert "a line of more than" in (got.error or "")


async def test_an_endless_body_is_cut_off():
    async def body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HEAD)
        while True:
            writer.write(chunk(TOKEN * 100))
            await writer.drain()

    got = await ask(body)
    assert got.ending in (Ending.PROTOCOL_ERROR, Ending.TIMEOUT)


async def test_a_reset_on_a_reused_idle_connection_is_retried_once_and_counted():
    async def one_answer_then_reset(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await read_request(reader)
        writer.write(WHOLE)
        await read_request(reader)  # the next request is read and never answered
        sock = writer.get_extra_info("socket")
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    async with scripted_server(one_answer_then_reset) as url:
        target = HttpTarget(url, model="m", limits=SHORT)
        first = await target.run(Workload((request("a"),)))
        second = await target.run(Workload((request("a"),)))
        await target.close()
    assert first["a"].ending is Ending.COMPLETE
    assert second["a"].ending is Ending.COMPLETE, second["a"].error
    assert (first["a"].retries, second["a"].retries) == (0, 1)


async def test_a_reset_after_the_first_byte_is_not_retried():
    seen = []

    async def half_then_reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(WHOLE)
        await read_request(reader)
        seen.append(1)
        writer.write(HEAD + chunk(TOKEN))

    async with scripted_server(half_then_reset) as url:
        target = HttpTarget(url, model="m", limits=SHORT)
        await target.run(Workload((request("a"),)))
        second = await target.run(Workload((request("a"),)))
        await target.close()
    assert second["a"].ending is Ending.DISCONNECTED
    assert second["a"].retries == 0
    assert len(seen) == 1


async def test_one_dead_stream_does_not_touch_its_neighbours():
    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = await read_request(reader)
        if b'"prompt":[2]' in body:
            writer.write(HEAD + chunk(TOKEN))
            await reader.read()
        writer.write(WHOLE)

    dead = WorkloadRequest("dead", prompt_ids=(2,))
    async with scripted_server(odd) as url:
        target = HttpTarget(url, model="m", limits=SHORT)
        transcript = await target.run(Workload((request("a"), dead, request("b"))))
        await target.close()
    endings = {key: r.ending for key, r in transcript.requests.items()}
    assert endings == {"a": Ending.COMPLETE, "dead": Ending.TIMEOUT, "b": Ending.COMPLETE}


async def test_a_plain_server_behind_https_is_a_connect_failure():
    async def no_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with scripted_server(no_tls) as url:
        target = HttpTarget(url.replace("http:", "https:"), model="m", limits=SHORT)
        transcript = await target.run(Workload((request(),)))
        await target.close()
    assert transcript["a"].ending is Ending.CONNECT_FAILED
    assert "TLS failed" in (transcript["a"].error or "")


async def test_a_port_that_accepts_nothing_more_times_out_on_connect():
    backlogged = socket.socket()
    backlogged.bind(("127.0.0.1", 0))
    backlogged.listen(0)
    port = backlogged.getsockname()[1]
    fillers = []
    for _ in range(4):  # fill the accept queue, so that further SYNs are dropped
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.1", port))
        fillers.append(filler)
    target = HttpTarget(f"http://127.0.0.1:{port}", model="m", limits=SHORT)
    transcript = await target.run(Workload((request(),)))
    for sock in [backlogged, *fillers]:
        sock.close()
    assert transcript["a"].ending is Ending.CONNECT_FAILED
    assert "no connection within" in (transcript["a"].error or "")
