"""`HttpTarget` against a small server in the same loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import uvloop

from harness.targets.http import HttpTarget
from harness.targets.target import TargetUnusable
from harness.transcript import Ending
from tests.client.counting_server import CountingServer, counting_server
from workloads.workload import AfterTokens, Workload, WorkloadRequest


@pytest.fixture
async def server() -> AsyncIterator[CountingServer]:
    async with counting_server() as running:
        yield running


def request(key: str, max_tokens: int = 4, **fields: object) -> WorkloadRequest:
    if not fields.keys() & {"prompt_text", "messages"}:
        fields["prompt_ids"] = (1, 2, 3)
    return WorkloadRequest(key, params={"max_tokens": max_tokens}, **fields)  # type: ignore[arg-type]


async def run(server: CountingServer, *requests: WorkloadRequest):
    target = HttpTarget(server.url)
    try:
        return await target.run(Workload(requests))
    finally:
        await target.close()


async def test_a_stream_is_read_to_its_end(server):
    transcript = await run(server, request("a"))
    got = transcript["a"]
    assert got.ending is Ending.COMPLETE, got.error
    assert got.first.token_ids == (100, 101, 102, 103)
    assert got.first.text == "<100><101><102><103>"
    assert got.first.finish_reasons == ["length"]
    assert (got.terminators, got.usages_seen) == (1, 1)
    assert got.usage is not None
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) == (3, 4)
    assert got.status == 200
    assert got.response_id == "one"
    assert server.requests[0]["model"] == "counting"
    times = [got.t_due_s, got.t_sent_s, *(c.t_s for c in got.first.chunks), got.t_end_s]
    assert times == sorted(times)
    assert len(got.raw) == 6


async def test_chat_messages_go_to_the_chat_endpoint_and_the_role_chunk_is_no_token(server):
    transcript = await run(server, request("a", messages=({"role": "user", "content": "hi"},)))
    got = transcript["a"]
    assert got.ending is Ending.COMPLETE, got.error
    assert got.first.text == "<100><101><102><103>"
    assert len(got.first.chunks) == 4


async def test_an_answer_without_stream_is_one_chunk(server):
    transcript = await run(server, request("a", stream=False), request("b", prompt_text="xy"))
    assert transcript["a"].ending is Ending.COMPLETE
    assert transcript["a"].first.token_ids == (100, 101, 102, 103)
    assert len(transcript["a"].first.chunks) == 1
    assert transcript["a"].terminators == 0
    assert "xy" in [body["prompt"] for body in server.requests]


async def test_a_trigger_waits_for_tokens_of_another_request(server):
    server.delay_s = 0.002
    transcript = await run(
        server,
        request("first", 8),
        request("second", 2, after=AfterTokens("first", 5)),
    )
    fifth = transcript["first"].first.chunks[4].t_s
    sixth = transcript["first"].first.chunks[5].t_s
    sent = transcript["second"].t_sent_s
    assert sent is not None
    assert fifth <= sent
    assert transcript["second"].t_due_s >= fifth
    assert sixth < transcript["second"].t_end_s


async def test_a_trigger_that_can_no_longer_come_releases_the_request(server):
    transcript = await run(
        server, request("first", 2), request("second", 1, after=AfterTokens("first", 99))
    )
    assert transcript["second"].ending is Ending.COMPLETE


async def test_cancel_points_close_the_connection(server):
    server.delay_s = 0.002
    transcript = await run(
        server,
        request("now", 500, cancel_after_tokens=0),
        request("later", 500, cancel_after_tokens=3),
        request("timed", 500, cancel_after_s=0.02),
        request("whole", 3),
    )
    assert transcript["now"].ending is Ending.CANCELLED
    assert transcript["later"].ending is Ending.CANCELLED
    assert transcript["timed"].ending is Ending.CANCELLED
    assert 3 <= len(transcript["later"].first.chunks) < 500
    assert transcript["whole"].ending is Ending.COMPLETE
    while server.live:
        await asyncio.sleep(0.001)


async def test_due_times_are_kept(server):
    transcript = await run(server, request("a", due_s=0.05), request("b"))
    assert transcript["a"].t_sent_s >= 0.05
    assert transcript["b"].t_sent_s < transcript["a"].t_sent_s


def test_nothing_is_sent_early_on_uvloop_whose_timers_are_coarse():
    async def go() -> None:
        async with counting_server() as running:
            due = [i * 0.0037 for i in range(40)]
            requests = [request(str(i), 1, due_s=d) for i, d in enumerate(due)]
            transcript = await run(running, *requests)
        lags = [r.t_sent_s - r.t_due_s for r in transcript.requests.values()]
        assert min(lags) >= 0.0

    uvloop.run(go())


async def test_three_hundred_streams_run_at_once(server):
    server.delay_s = 1.0
    transcript = await run(server, *(request(str(i), 1) for i in range(300)))
    assert server.most_live == 300
    assert all(t.ending is Ending.COMPLETE for t in transcript.requests.values())


async def test_params_override_and_none_removes_a_field(server):
    target = HttpTarget(server.url, model="m", extra_params={"seed": 1, "top_k": 5})
    ask = WorkloadRequest(
        "a", prompt_ids=(1,), params={"seed": 2, "return_token_ids": None, "max_tokens": 1}
    )
    await target.run(Workload((ask,)))
    await target.close()
    body = server.requests[0]
    assert body["seed"] == 2
    assert body["top_k"] == 5
    assert "return_token_ids" not in body


async def test_metrics_are_summed_over_labels(server):
    target = HttpTarget(server.url)
    assert await target.metrics() == {"x_running": 1.0}
    await target.close()


async def test_idle_connections_are_reused(server):
    target = HttpTarget(server.url)
    await target.run(Workload((request("a"),)))
    again = await target.run(Workload((request("b"),)))
    assert again["b"].t_connect_s is None
    assert (target.pool.opened, target.pool.reused) == (1, 1)
    await target.close()


async def test_nothing_listening_is_a_typed_ending_and_an_unusable_target():
    target = HttpTarget("http://127.0.0.1:9", model="m")
    transcript = await target.run(Workload((request("a"),)))
    assert transcript["a"].ending is Ending.CONNECT_FAILED
    with pytest.raises(TargetUnusable, match="nothing listens there"):
        await target.discover()
