"""The scaling benchmark's server answers as it must, and its summary compares like with like."""

from __future__ import annotations

import asyncio

import pytest

from harness.targets.http import HttpTarget
from harness.transcript import Ending
from tests.benchmarks.scaling import EVENTS, firehose, summary
from workloads.workload import Workload, WorkloadRequest


def test_a_client_reads_whole_answers_from_the_firehose() -> None:
    workload = Workload(
        tuple(
            WorkloadRequest(f"r{i}", prompt_ids=(1, 2), params={"max_tokens": 51}) for i in range(9)
        ),
        concurrency=3,
    )

    async def run(url: str) -> None:
        target = HttpTarget(url)
        transcript = await target.run(workload)
        await target.close()
        assert target.model == "firehose"
        for answer in transcript.requests.values():
            assert answer.ending is Ending.COMPLETE
            assert len(answer.first.chunks) == EVENTS
            assert answer.usage is not None
            assert answer.usage.completion_tokens == EVENTS

    with firehose() as (url, _):
        asyncio.run(run(url))


def test_rates_are_compared_with_those_of_the_first_number_of_workers() -> None:
    def run(workers: int, rate: float) -> dict[str, float]:
        cpu = {"client_cpu_us_per_event": 10.0, "client_cpu_s": 3.0, "server_cpu_s": 1.0}
        return {"workers": workers, "events_per_s": rate, **cpu}

    rows = summary([run(1, 100), run(2, 190), run(2, 210), run(1, 100), run(1, 400), run(2, 200)])
    assert [row["workers"] for row in rows] == [1, 2]
    assert [row["times_the_first"] for row in rows] == pytest.approx([1.0, 2.0])
    assert [row["server_share_of_cpu"] for row in rows] == [0.25, 0.25]
