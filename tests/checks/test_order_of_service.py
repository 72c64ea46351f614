"""SCH-11 in virtual time: a queue is no stack, and who need not wait proves nothing."""

from __future__ import annotations

import pytest

from harness.verdict import Verdict
from tests.checks.conftest import RunChecks
from tests.checks.fake_server import Row
from tests.checks.paced_server import PacedServer


class NewestFirst(PacedServer):
    """Of those who wait, the last to come is served first."""

    def _next(self, waiting: list[Row]) -> Row:
        return waiting.pop()


class InTurns(PacedServer):
    """No defect, only another order: the last to come and the first to come in turns."""

    served = 0

    def _next(self, waiting: list[Row]) -> Row:
        self.served += 1
        return waiting.pop(-1 if self.served % 2 else 0)


@pytest.mark.parametrize(
    ("server", "verdict"), [(PacedServer, Verdict.PASS), (NewestFirst, Verdict.FAIL)]
)
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_a_stack_starves_and_a_queue_does_not(
    run_checks: RunChecks, server: type[PacedServer], verdict: Verdict, slots: int
) -> None:
    (result,) = run_checks(server, "SCH-11", slots=slots).results
    assert result.verdict is verdict, result.reason


def test_another_fair_order_is_not_accused(run_checks: RunChecks) -> None:
    (result,) = run_checks(InTurns, "SCH-11", slots=1).results
    assert result.verdict is Verdict.PASS, result.reason


def test_where_nobody_waits_nothing_is_shown(run_checks: RunChecks) -> None:
    (result,) = run_checks(PacedServer, "SCH-11", chunk_tokens=None, slots=64).results
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "served_meanwhile" in result.reason
