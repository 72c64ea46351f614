"""Cutting a workload among workers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.load.split import split
from workloads.presets import PRESETS
from workloads.prompts import TokenAlphabet
from workloads.strategies import workloads
from workloads.workload import Workload

ALPHABET = TokenAlphabet(tuple(range(10, 20)))


@settings(max_examples=20)
@given(
    workloads(ALPHABET, max_requests=12, cancels=True),
    st.integers(1, 6),
    st.one_of(st.none(), st.integers(1, 9)),
)
def test_the_parts_are_the_whole_with_the_same_schedule(
    workload: Workload, workers: int, concurrency: int | None
):
    workload = Workload(workload.requests, workload.origin, workload.seed, concurrency)
    parts = split(workload, workers)
    assert 1 <= len(parts) <= workers
    together = [r for part in parts for r in part.requests]
    assert sorted(together, key=lambda r: r.key) == sorted(workload.requests, key=lambda r: r.key)
    order = [r.key for r in workload.requests]
    for part in parts:
        assert part.requests
        keys = [r.key for r in part.requests]
        assert keys == sorted(keys, key=order.index)
    if concurrency is not None:
        slots = [part.concurrency or 0 for part in parts]
        assert sum(slots) == concurrency or len(parts) < min(workers, concurrency)
        assert min(slots) >= 1


def test_turns_of_one_conversation_stay_with_one_worker():
    workload = PRESETS["conversation"].build(ALPHABET, seed=2)
    home = {r.key: n for n, part in enumerate(split(workload, 3)) for r in part.requests}
    later = [r for r in workload.requests if r.after_end]
    assert all(home[r.key] == home[r.after_end or ""] for r in later)
    assert set(home.values()) == {0, 1, 2}
