"""LEN: the boundary of the context, and stop token ids, on servers that are right and wrong."""

from __future__ import annotations

import pytest

from harness.verdict import Verdict
from tests.checks.conftest import RunChecks
from tests.checks.fake_server import FakeServer, Limited, Row, StopIdsLost, StopIdsShared
from workloads.workload import WorkloadRequest


class MinTokens(FakeServer):
    """Holds the ending token back until min_tokens others are there, less ``early``."""

    early = 0
    ending_counts = True

    def refuses(self, request: WorkloadRequest) -> bool:
        least = request.params.get("min_tokens", 0)
        return not isinstance(least, int) or super().refuses(request)

    def _next_token(self, row: Row, seen: tuple[int, ...]) -> int:
        token = super()._next_token(row, seen)
        least = row.request.params.get("min_tokens", 0)
        held = token == self.config.eos_id and len(row.token_ids) < least - self.early
        return max(row.prompt_ids) if held else token

    def counted(self, row: Row) -> int:
        last = row.token_ids[-1] == self.config.eos_id and not self.ending_counts
        return len(row.token_ids) - last


class MinTokensBeforeStops(MinTokens):
    """Stop strings wait for min_tokens, too."""

    def stops_now(self, row: Row) -> list[str]:
        waits = len(row.token_ids) < row.request.params.get("min_tokens", 0)
        return [] if waits else super().stops_now(row)


class MinTokensEarly(MinTokens):
    """The ending token may itself be the last of the min_tokens."""

    early = 1


class MinTokensOfText(MinTokens):
    """No defect: usage leaves the ending token out."""

    ending_counts = False


class MinTokensOfTextEarly(MinTokensOfText):
    """As `MinTokensEarly`, and usage leaves the ending token out."""

    early = 1


def test_a_context_that_can_be_filled_passes(run_checks: RunChecks) -> None:
    (result,) = run_checks(Limited, "LEN-9").results
    assert result.verdict is Verdict.PASS, result.reason


@pytest.mark.parametrize("room", [80, 128, 160])
def test_a_cache_smaller_than_the_context_may_refuse(run_checks: RunChecks, room: int) -> None:
    (result,) = run_checks(Limited, "LEN-9", room=room).results
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "contexts_filled" in result.reason


def test_a_context_that_holds_one_token_less_than_stated_fails(run_checks: RunChecks) -> None:
    (result,) = run_checks(Limited, "LEN-9", room=239).results
    assert result.verdict is Verdict.FAIL
    assert "240 tokens that the server states cannot be filled" in result.reason


def test_a_context_that_holds_more_than_stated_fails(run_checks: RunChecks) -> None:
    (result,) = run_checks(Limited, "LEN-9", room=300).results
    assert result.verdict is Verdict.FAIL
    assert "request over" in result.reason


@pytest.mark.parametrize(
    ("server", "verdict"),
    [
        (FakeServer, Verdict.PASS),
        (StopIdsLost, Verdict.FAIL),
        (StopIdsShared, Verdict.FAIL),
    ],
)
def test_stop_token_ids_end_the_answer_they_belong_to(
    run_checks: RunChecks, server: type[FakeServer], verdict: Verdict
) -> None:
    (result,) = run_checks(server, "LEN-11").results
    assert result.verdict is verdict, result.reason


@pytest.mark.parametrize(
    ("server", "verdict"),
    [
        (MinTokens, Verdict.PASS),
        (MinTokensOfText, Verdict.PASS),
        (MinTokensEarly, Verdict.FAIL),
        (MinTokensOfTextEarly, Verdict.FAIL),
    ],
)
def test_an_ending_one_token_before_min_tokens_fails(
    run_checks: RunChecks, server: type[FakeServer], verdict: Verdict
) -> None:
    (result,) = run_checks(server, "LEN-8").results
    assert result.verdict is verdict, result.reason


@pytest.mark.parametrize(
    ("server", "verdict"),
    [(MinTokensBeforeStops, Verdict.PASS), (MinTokens, Verdict.FAIL)],
)
def test_a_stop_string_before_min_tokens_fails(
    run_checks: RunChecks, server: type[FakeServer], verdict: Verdict
) -> None:
    (result,) = run_checks(server, "LEN-12").results
    assert result.verdict is verdict, result.reason
