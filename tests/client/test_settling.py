"""Answers are parsed while the run goes on where somebody wants them, and never all at once."""

from __future__ import annotations

import asyncio

import pytest

from harness.client import workload_run
from harness.client.request_run import RequestRun
from harness.load.paced.process import paced_server
from harness.targets.http import HttpTarget
from harness.transcript import Ending, RequestTranscript
from workloads.workload import Workload, WorkloadRequest


def short_ones_beside_a_long_one(short: int) -> Workload:
    def request(key: str, tokens: int) -> WorkloadRequest:
        params = {"max_tokens": tokens}
        return WorkloadRequest(key, prompt_ids=(1, 2), params=params)

    return Workload((request("long", 300), *(request(f"s{i}", 5) for i in range(short))))


async def settled_during(workload: Workload, keep_raw: bool = False):
    """What was settled, and which of it before the last request ended."""
    ended: list[str] = []
    early: list[str] = []
    settled: list[RequestTranscript] = []

    def on_settled(request: RequestTranscript) -> None:
        settled.append(request)
        if len(ended) < len(workload.requests):
            early.append(request.key)

    with paced_server("--ttft-s", "0.01", "--gap-s", "0.005") as url:
        target = HttpTarget(url, model="paced", keep_raw=keep_raw)
        transcript = await target.run(
            workload, on_end=lambda r: ended.append(r.key), on_settled=on_settled
        )
        await target.close()
    return transcript, settled, early


@pytest.mark.parametrize("keep_raw", [False, True])
async def test_each_request_is_given_once_whole_and_before_the_run_ends(keep_raw: bool):
    transcript, settled, early = await settled_during(short_ones_beside_a_long_one(20), keep_raw)
    assert sorted(r.key for r in settled) == sorted(transcript.requests)
    assert sorted(early) == sorted(f"s{i}" for i in range(20)), "the long one takes 1.5 s"
    for request in settled:
        assert request is transcript[request.key]
        assert request.ending is Ending.COMPLETE
        assert request.usage is not None
        assert len(request.first.chunks) == request.usage.completion_tokens


async def test_the_loop_is_not_held_up_for_all_answers_at_once(monkeypatch: pytest.MonkeyPatch):
    """Twenty answers that take 10 ms each to parse: other work gets its turn between them."""
    monkeypatch.setattr(workload_run, "SETTLE_SHARE", 0.5)
    honest = RequestRun.settle
    turns = 0
    seen: list[int] = []

    async def other_work() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    def slow(run: RequestRun) -> None:
        seen.append(turns)
        deadline_s = workload_run.now() + 0.01
        while workload_run.now() < deadline_s:
            pass
        honest(run)

    monkeypatch.setattr(RequestRun, "settle", slow)
    task = asyncio.create_task(other_work())
    await settled_during(short_ones_beside_a_long_one(20))
    task.cancel()
    during = seen[:20]
    assert len(set(during)) >= 15, f"the loop turned between few of them: {during}"
