"""Workers: the same requests at the same times whatever their number, and clocks that differ."""

from __future__ import annotations

import sys

import pytest

from harness.cli.errors import UserError
from harness.load.client_health import ClientHealth, merged
from harness.load.paced.process import paced_server
from harness.load.ray_workers import clock_offset, run_on_ray
from harness.load.worker import WorkerTask
from harness.load.worker_run import WorkerPlan, measure_with_workers
from harness.transcript import Ending, RequestTranscript
from workloads.arrivals import Poisson
from workloads.lengths import Uniform
from workloads.prompts import TokenAlphabet
from workloads.recipe import Recipe

RECIPE = Recipe("t", "t", 30, Uniform(3, 20), Uniform(2, 6), arrivals=Poisson(60.0))


def measured(url: str, workers: int, **changes: object) -> list[RequestTranscript]:
    workload = RECIPE.build(TokenAlphabet(tuple(range(9, 30))), seed=5)
    plan = WorkerPlan(workers, **changes)  # type: ignore[arg-type]
    measurement = measure_with_workers(plan, WorkerTask(url, "paced", workload))
    assert [r.key for r in measurement.requests] == [r.key for r in workload.requests]
    assert measurement.health.workers == workers
    return measurement.requests


def seen(requests: list[RequestTranscript]) -> list[tuple[object, ...]]:
    """What must not depend on who sent it."""
    return [
        (r.key, r.ending, r.t_due_s, r.usage, [c.tokens for c in r.first.chunks]) for r in requests
    ]


def test_results_do_not_depend_on_the_number_of_workers():
    with paced_server("--ttft-s", "0.005", "--gap-s", "0.001") as url:
        one, three = measured(url, 1), measured(url, 3)
    assert {r.ending for r in one} == {Ending.COMPLETE}
    assert seen(one) == seen(three)
    for request in three:
        assert request.t_sent_s is not None
        assert request.t_sent_s >= request.t_due_s - 1e-3, "nobody is early: one common start"


@pytest.mark.external
@pytest.mark.slow
def test_ray_actors_give_what_local_workers_give():
    pytest.importorskip("ray")
    with paced_server("--ttft-s", "0.005", "--gap-s", "0.001") as url:
        local, ray = measured(url, 2), measured(url, 2, ray=True)
    assert seen(local) == seen(ray)


@pytest.mark.parametrize("text", ["0", "x", "ray", "4@here", "-1"])
def test_a_bad_number_of_workers_is_refused(text: str):
    with pytest.raises(ValueError, match="workers"):
        WorkerPlan.parse(text)


def test_numbers_of_workers():
    assert WorkerPlan.parse("3") == WorkerPlan(3)
    assert WorkerPlan.parse("ray:2") == WorkerPlan(2, True)
    assert WorkerPlan.parse("ray:2@10.0.0.1:6379") == WorkerPlan(2, True, "10.0.0.1:6379")


def test_a_clock_that_is_ahead_is_found_within_the_bound(monkeypatch: pytest.MonkeyPatch):
    ticks = iter(range(10_000))
    monkeypatch.setattr("harness.load.ray_workers.now", lambda: next(ticks) * 0.001)
    offset, error = clock_offset(lambda: next(ticks) * 0.001 + 7.0, pings=4)
    assert abs(offset - 7.0) <= error
    assert error <= 0.001


def test_the_health_of_several_workers_is_the_worst_of_each():
    good = ClientHealth(cpu_s=1.0, loop_lag_p99_s=0.001, connections_opened=3)
    bad = ClientHealth(cpu_s=2.0, loop_lag_p99_s=0.2, connections_opened=4, reasons=["late"])
    both = merged([good, bad])
    assert (both.cpu_s, both.loop_lag_p99_s, both.connections_opened) == (3.0, 0.2, 7)
    assert both.reasons == ["worker 1: late"]
    assert not both.valid


def test_ray_that_is_not_installed_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'isobatch\[ray\]'"):
        run_on_ray([])
