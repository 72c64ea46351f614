"""The watch over the client."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from harness.load.client_health import HealthLimits, HealthWatch
from harness.transcript import Ending, RequestTranscript


async def test_a_blocked_loop_makes_the_run_invalid():
    async with HealthWatch() as watch:
        for _ in range(3):
            await asyncio.sleep(0)
            time.sleep(0.12)  # noqa: ASYNC251  (the loop is blocked, which is the point)
            await asyncio.sleep(0.06)
    health = watch.judge([])
    assert not health.valid
    assert any("loop_lag" in reason for reason in health.reasons)


async def test_the_collector_is_left_as_it_was():
    before = gc.get_threshold()
    async with HealthWatch():
        assert gc.get_threshold() != before
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


LATE = RequestTranscript("a", Ending.COMPLETE, t_due_s=0.0, t_sent_s=1.0)


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (HealthLimits(loop_lag_p99_s=-1.0), "loop_lag_p99_s"),
        (HealthLimits(send_lag_p99_s=0.5), "send_lag_p99_s"),
        (HealthLimits(cpu_share=-1.0), "cpu_share"),
        (HealthLimits(gc_pause_s=-1.0), "gc_pause_max_s"),
    ],
)
async def test_each_limit_gives_its_reason_and_advice(limits: HealthLimits, name: str):
    generous = HealthLimits(9.0, 9.0, 9.0, 9.0)
    for field in ("loop_lag_p99_s", "send_lag_p99_s", "cpu_share", "gc_pause_s"):
        if getattr(limits, field) == getattr(HealthLimits(), field):
            limits = HealthLimits(
                **{f: getattr(limits, f) for f in HealthLimits.__slots__}
                | {field: getattr(generous, field)}
            )
    async with HealthWatch(limits) as watch:
        await asyncio.sleep(0.06)
    health = watch.judge([LATE])
    assert len(health.reasons) == 1
    assert health.reasons[0].startswith(name)
    assert "use" in health.reasons[0] or "send" in health.reasons[0]


async def test_what_comes_after_the_last_answer_is_not_held_against_the_run():
    async with HealthWatch() as watch:
        await asyncio.sleep(0.06)
        watch.stop()
        at_the_end = watch.health.duration_s, watch.health.loop_lag_max_s, watch.health.cpu_s
        time.sleep(0.1)  # noqa: ASYNC251
        await asyncio.sleep(0)
    health = watch.judge([])
    assert (health.duration_s, health.loop_lag_max_s, health.cpu_s) == at_the_end
    assert health.cpu_total_s >= health.cpu_s
