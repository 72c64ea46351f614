"""The paced server: its timetable, what it says about it, and how it goes wrong on purpose."""

from __future__ import annotations

import time

import pytest

from harness.client.limits import Limits
from harness.load.paced.pace import Pace
from harness.load.paced.process import paced_server
from harness.targets.http import HttpTarget
from harness.transcript import Ending, RequestTranscript
from workloads.workload import Workload, WorkloadRequest


@pytest.fixture(scope="module")
def paced():
    with paced_server("--ttft-s", "0.01", "--gap-s", "0.002") as url:
        yield url


async def ask(url: str, tokens: int = 6, **pace: float) -> RequestTranscript:
    limits = Limits(first_token_s=1.0, idle_s=0.2)
    target = HttpTarget(url, model="paced", limits=limits)
    params = {"max_tokens": tokens, "paced": pace}
    transcript = await target.run(Workload((WorkloadRequest("a", prompt_ids=(1,), params=params),)))
    await target.close()
    return transcript["a"]


def test_a_timetable():
    plain = Pace(ttft_s=1.0, gap_s=0.5)
    assert list(plain.writes(3)) == [(1.0, 0, 1), (1.5, 1, 1), (2.0, 2, 1)]
    burst = Pace(ttft_s=1.0, gap_s=0.5, tokens_per_chunk=2, chunks_per_write=2)
    assert list(burst.writes(6)) == [(1.0, 0, 2), (2.0, 2, 1)]
    stall = Pace(ttft_s=1.0, gap_s=0.5, stall_at=1, stall_s=3.0)
    assert list(stall.writes(2)) == [(1.0, 0, 1), (4.5, 1, 1)]


@pytest.mark.parametrize("value", [[], {"speed": 1}, {"gap_s": -1}, {"gap_s": "fast"}])
def test_a_bad_pace_is_refused(value: object):
    with pytest.raises(ValueError, match="paced"):
        Pace.from_json(value, Pace())


async def test_events_say_when_they_were_sent_and_never_before_they_were_due(paced: str):
    before = time.monotonic()
    got = await ask(paced)
    assert got.ending is Ending.COMPLETE, got.error
    documents = [d for d in got.raw if isinstance(d, dict) and "paced_sent_s" in d]
    sent = [d["paced_sent_s"] for d in documents]
    arrived = documents[0]["paced_arrived_s"]
    assert before <= arrived
    for number, sent_s in enumerate(sent):
        assert sent_s >= arrived + 0.01 + number * 0.002 - 1e-4
    assert len(got.first.chunks) == 6
    assert got.usage is not None
    assert got.usage.completion_tokens == 6


async def test_several_tokens_in_an_event_and_several_events_in_a_write(paced: str):
    got = await ask(paced, 7, tokens_per_chunk=3, chunks_per_write=2)
    assert [c.tokens for c in got.first.chunks] == [3, 3, 1]
    first, second, third = (c.t_s for c in got.first.chunks)
    assert first == second <= third


async def test_a_stall_is_seen_where_it_was(paced: str):
    got = await ask(paced, stall_at=3, stall_s=0.1)
    assert got.t_sent_s is not None
    after = [c.t_s - got.t_sent_s for c in got.first.chunks]
    planned = [0.01, 0.012, 0.014, 0.116, 0.118, 0.12]
    assert all(seen >= due for seen, due in zip(after, planned, strict=True)), after


@pytest.mark.parametrize(
    ("pace", "ending"),
    [
        ({"error_at": 2}, Ending.SERVER_ERROR),
        ({"hang_at": 2}, Ending.TIMEOUT),
        ({"reset_at": 2}, Ending.DISCONNECTED),
        ({"speed": 2}, Ending.REFUSED),
    ],
)
async def test_it_goes_wrong_as_asked(paced: str, pace: dict[str, float], ending: Ending):
    got = await ask(paced, **pace)
    assert got.ending is ending, got.error
    if ending is not Ending.REFUSED:
        assert len(got.first.chunks) == 2, "what came before is kept"
