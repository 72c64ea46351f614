"""TEC in virtual time: each technique missed where it is missing, and no disturbance accuses."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from harness.checks.registry import select
from harness.checks.technique import largest_gap_within_s
from harness.transcript import ChoiceTranscript, Ending, RequestTranscript, TokenChunk
from harness.verdict import CheckResult, Verdict
from tests.checks.conftest import RunChecks
from tests.checks.paced_server import PacedServer

NINE = 9


def _one(run_checks: RunChecks, check_id: str, **options: object) -> CheckResult:
    return run_checks(PacedServer, check_id, **options).results[0]


def _away_in(rounds: Collection[int]) -> dict[str, object]:
    return {"late_pause_s": lambda number: 1.0 if number % NINE in rounds else 0.0}


def test_a_server_with_every_technique_passes(run_checks: RunChecks) -> None:
    results = run_checks(PacedServer, "TEC").results
    found = {r.check_id: (r.verdict, r.reason) for r in results}
    assert found == {c.id: (Verdict.PASS, "") for c in select(["TEC"])}
    assert all(r.evidence["rounds"] == 3 for r in results)


@pytest.mark.parametrize(
    ("check_id", "options", "verdict"),
    [
        ("TEC-1", {"cached_keys": False}, Verdict.FAIL),
        ("TEC-1", {"cached_keys": False, "chunk_tokens": None}, Verdict.FAIL),
        ("TEC-1", {"cached_keys": False, "chunk_tokens": 64}, Verdict.FAIL),
        ("TEC-2", {"chunk_tokens": None}, Verdict.FAIL),
        ("TEC-3", {"padded": True}, Verdict.FAIL),
        ("TEC-3", {"padded": True, "chunk_tokens": None}, Verdict.FAIL),
        ("TEC-4", {"refill": "never"}, Verdict.FAIL),
        ("TEC-4", {"refill": "unused", "slots": 2}, Verdict.FAIL),
        ("TEC-4", {"slots": 2}, Verdict.PASS),
        ("TEC-5", {"cached_prefixes": False}, Verdict.UNSUPPORTED),
        ("TEC-6", {"slots": 1}, Verdict.FAIL),
    ],
)
def test_a_technique_that_is_missing_is_missed(
    run_checks: RunChecks, check_id: str, options: dict[str, object], verdict: Verdict
) -> None:
    result = _one(run_checks, check_id, shrink_runs=0, **options)
    assert result.verdict is verdict, result.reason
    if verdict is not Verdict.PASS:
        assert result.evidence["agreement"] == 1
        assert result.evidence["rounds"] == NINE


@pytest.mark.parametrize("disturbed", range(NINE))
def test_one_disturbed_round_of_nine_accuses_nobody(run_checks: RunChecks, disturbed: int) -> None:
    result = _one(run_checks, "TEC-2", **_away_in({disturbed}))
    assert result.verdict is Verdict.PASS, result.reason


@pytest.mark.parametrize("disturbed", [{0, 1}, {1, 2, 5}, {0, 1, 3, 5, 7}])
def test_rounds_that_disagree_decide_nothing(run_checks: RunChecks, disturbed: set[int]) -> None:
    """Even on a second try; and six of nine disturbed rounds would be more than disagreement."""
    result = _one(run_checks, "TEC-2", **_away_in(disturbed))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "agreement is 0" in result.reason
    assert result.evidence["rounds"] == NINE


def test_six_rounds_of_nine_accuse(run_checks: RunChecks) -> None:
    away = _away_in({0, 1, 3, 5, 7, 8})
    assert _one(run_checks, "TEC-2", shrink_runs=0, **away).verdict is Verdict.FAIL


@pytest.mark.parametrize("check_id", ["TEC-2", "TEC-3"])
def test_streams_that_had_ended_tell_nothing(run_checks: RunChecks, check_id: str) -> None:
    """With one slot the long prompt is read after the streams: neither a pass nor a failure."""
    result = _one(run_checks, check_id, slots=1)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "control is 0" in result.reason


def test_a_control_that_fails_accuses_nobody(run_checks: RunChecks) -> None:
    """Where a long prompt takes no longer than a short one, nothing is said of the keys."""

    class Slow(PacedServer):
        def _cost_s(self, *args: object) -> float:
            return 0.1

    result = run_checks(Slow, "TEC-1", chunk_tokens=None).results[0]
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "control is" in result.reason


def test_only_the_gaps_while_the_late_prompt_was_read_count() -> None:
    times = [0.0, 1.0, 1.1, 1.5, 1.6, 3.0]
    answer = RequestTranscript("stream", Ending.COMPLETE, 0.0)
    answer.choices[0] = ChoiceTranscript([TokenChunk(t) for t in times])
    assert largest_gap_within_s(answer, 1.05, 1.55) == pytest.approx(0.4)
    assert largest_gap_within_s(answer, 1.55, 2.0) == pytest.approx(1.4)
    assert largest_gap_within_s(answer, 1.05, 3.1) is None, "the stream had ended"
