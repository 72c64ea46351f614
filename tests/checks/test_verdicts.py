"""A right server passes, a wrong one fails for the right reason, and a check that saw nothing
says so."""

from __future__ import annotations

import pytest

from harness.verdict import Verdict
from tests.checks.conftest import RunChecks
from tests.checks.fake_server import (
    FakeServer,
    LargePages,
    NeighbourVisible,
    OneTokenMore,
    PageReused,
    PositionShifted,
    StopLeaks,
    UsageShort,
)

CHAPTERS = "EQV,ISO,STR,LEN"


def test_a_right_server_fails_nothing(run_checks: RunChecks) -> None:
    report = run_checks(FakeServer, CHAPTERS)
    assert [r for r in report.results if r.verdict in (Verdict.FAIL, Verdict.ERROR)] == []
    assert sum(r.verdict is Verdict.PASS for r in report.results) >= 30


@pytest.mark.parametrize(
    ("server", "chapter"),
    [
        (NeighbourVisible, "EQV"),
        (NeighbourVisible, "ISO"),
        (PositionShifted, "EQV"),
        (PageReused, "ISO"),
        (StopLeaks, "STR"),
        (UsageShort, "LEN"),
        (OneTokenMore, "LEN"),
    ],
)
def test_a_wrong_server_fails_the_chapter_it_breaks(
    run_checks: RunChecks, server: type[FakeServer], chapter: str
) -> None:
    report = run_checks(server, chapter, shrink_runs=4)
    failed = [r for r in report.results if r.verdict is Verdict.FAIL]
    assert failed, f"{server.__name__} passed {chapter}"
    for result in failed:
        failure = result.failures[0]
        assert failure.workload is not None
        assert failure.detail
        assert 1 <= failure.seen <= failure.tried
        assert result.first_failure_requests is not None


def test_the_smallest_failing_workload_is_small(run_checks: RunChecks) -> None:
    """A leak from a neighbour needs two requests of two tokens, and shrinking finds them."""
    report = run_checks(NeighbourVisible, "EQV-1")
    workload = report.results[0].failures[0].workload
    assert workload is not None
    assert len(workload.requests) == 2
    assert all(len(r.prompt_ids or ()) <= 20 for r in workload.requests)
    assert report.results[0].failures[0].seen == report.results[0].failures[0].tried == 4


def test_without_overlap_a_pass_is_inconclusive(run_checks: RunChecks) -> None:
    report = run_checks(FakeServer, "EQV-1", running_limit=1)
    assert report.results[0].verdict is Verdict.INCONCLUSIVE
    assert "interleaved_pairs" in report.results[0].reason


def test_a_cache_of_large_pages_is_seen_to_be_hit(run_checks: RunChecks) -> None:
    """vLLM on a CPU caches 128 tokens or nothing: shorter conversations never hit its cache."""
    (result,) = run_checks(LargePages, "CCH-11").results
    assert result.verdict is Verdict.PASS
    assert result.evidence["cached_tokens"] >= 128


def test_a_missing_capability_is_unsupported_with_its_reason(run_checks: RunChecks) -> None:
    report = run_checks(FakeServer, "LEN-9")
    assert report.results[0].verdict is Verdict.UNSUPPORTED
    assert "max_model_len" in report.results[0].reason


def test_the_same_seed_sends_the_same_requests(run_checks: RunChecks) -> None:
    first, second = (run_checks(NeighbourVisible, "EQV-2,ISO-1", shrink_runs=10) for _ in range(2))
    assert [r.failures[0].to_json("x") for r in first.results] == [
        r.failures[0].to_json("x") for r in second.results
    ]
