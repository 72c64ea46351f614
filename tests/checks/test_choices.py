"""Several choices where greedy ones are refused: asked for in the way the server takes."""

from __future__ import annotations

from harness.verdict import Verdict
from tests.checks.conftest import RunChecks
from tests.checks.fake_server import FakeServer, Row
from workloads.workload import WorkloadRequest


class RefusesGreedyChoices(FakeServer):
    """No defect: as vLLM, it sees no sense in several choices that must be equal."""

    def refuses(self, request: WorkloadRequest) -> bool:
        greedy = request.params.get("temperature", 1) == 0
        refused = greedy and request.params.get("n", 1) > 1
        typed = isinstance(request.params.get("top_k", 0), int)
        return refused or not typed or super().refuses(request)


class RefusesChoices(FakeServer):
    """No defect: one choice only, however it is drawn."""

    def refuses(self, request: WorkloadRequest) -> bool:
        return request.params.get("n", 1) > 1 or super().refuses(request)


class LosesAChoice(RefusesGreedyChoices):
    """The last of several choices stays without its last token."""

    def most_tokens(self, row: Row) -> int:
        return super().most_tokens(row) - (1 if row.choice == 2 else 0)


CHECKS = "SCH-9,CAN-6,API-2,LEN-10"


def test_a_server_that_refuses_greedy_choices_is_asked_for_drawn_ones(run_checks: RunChecks):
    report = run_checks(RefusesGreedyChoices, CHECKS)
    assert {r.check_id: (r.verdict, r.reason) for r in report.results} == dict.fromkeys(
        CHECKS.split(","), (Verdict.PASS, "")
    )


def test_a_lost_choice_shows_among_drawn_ones_too(run_checks: RunChecks):
    [result] = run_checks(LosesAChoice, "API-2").results
    assert result.verdict is Verdict.FAIL


def test_without_several_choices_of_any_kind_the_checks_are_unsupported(run_checks: RunChecks):
    for result in run_checks(RefusesChoices, CHECKS).results:
        assert result.verdict is Verdict.UNSUPPORTED
        assert "n > 1" in result.reason
