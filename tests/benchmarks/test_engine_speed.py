"""What the engine spends outside the model. Off by default: `pytest --benchmark-only FILE`.

The comparison with other engines needs minutes and a real model, and is a program:
`python -m tests.benchmarks.engine_speed.compare`.
"""

from __future__ import annotations

import time

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.benchmarks.engine_speed.stub import decoding_engine


@pytest.mark.parametrize("running", [1, 10, 100, 1_000, 10_000])
def test_step_without_a_model(benchmark: BenchmarkFixture, running: int) -> None:
    """Scheduling, assembly, sampling and events of a step in which every live request decodes."""
    engine = decoding_engine(running=running, waiting=0)
    rounds = 200 if running <= 100 else 20
    benchmark.extra_info["live_requests"] = running
    benchmark.pedantic(engine.step, rounds=rounds, warmup_rounds=3)
    assert engine.last_step is not None
    assert engine.last_step.num_tokens == running


@pytest.mark.parametrize("waiting", [0, 100, 1_000, 10_000])
def test_a_long_queue_costs_nothing(benchmark: BenchmarkFixture, waiting: int) -> None:
    """Sixty-four decode; the others only wait."""
    engine = decoding_engine(running=64, waiting=waiting)
    benchmark.extra_info["waiting"] = waiting
    benchmark.pedantic(engine.step, rounds=200, warmup_rounds=3)


def test_cost_follows_the_batch_and_not_the_queue() -> None:
    """The claim as a test that any machine can run: best of many steps, queue of 5,000 or none."""

    def best_step_s(waiting: int) -> float:
        engine = decoding_engine(running=16, waiting=waiting)
        times = []
        for _ in range(60):
            start = time.perf_counter()
            engine.step()
            times.append(time.perf_counter() - start)
        return min(times)

    empty, long = best_step_s(0), best_step_s(5_000)
    assert long < 3 * empty, f"{long * 1e6:.0f} us with a queue, {empty * 1e6:.0f} us without"
