"""The kill matrix: what it counts, and a page that shows it; the campaign on one real fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.checks.budget import BUDGETS
from harness.checks.registry import Chapter, all_checks, select
from harness.mutants.campaign import Attempt, Campaign, MutantRow
from harness.mutants.matrix import matrix_document, matrix_page
from harness.mutants.settings import chapters_of
from harness.verdict import CheckResult, Verdict
from reference_engine.faults import FAULTS


def _result(check_id: str, verdict: Verdict, requests: int) -> CheckResult:
    return CheckResult(check_id, verdict, "s", "why", requests=requests, first_failure_requests=2)


def _row(name: str, *attempts: Attempt) -> MutantRow:
    return MutantRow(name, "a <b>title</b>", "length and count contracts", ("x#1",), list(attempts))


KILLED = _row(
    "killed",
    Attempt("default", [_result("LEN-1", Verdict.PASS, 10)], executions=3, requests=10),
    Attempt("pressure", [_result("LEN-2", Verdict.FAIL, 5)], executions=3, requests=5),
)
SURVIVOR = _row("survivor", Attempt("default", [_result("LEN-1", Verdict.PASS, 10)], executions=0))


def test_the_document_counts_kills_survivors_and_requests() -> None:
    checks = list(all_checks().values())
    document = matrix_document([KILLED, SURVIVOR], checks, [], budget="quick")
    assert document["killed"] == 1
    assert document["killed_by_own_chapter"] == 1
    assert document["survivors"] == ["survivor"]
    assert document["never_executed"] == ["survivor"]
    assert KILLED.requests_to_detection == 12
    assert document["median_requests_to_detection"] == 12


def test_a_server_that_could_not_be_judged_is_no_kill() -> None:
    broken = _row("broken", Attempt("default", error="the server did not start"))
    document = matrix_document([broken], [], [])
    assert document["killed"] == 0
    assert document["not_judged"] == ["broken"]
    assert document["survivors"] == []


def test_a_failure_of_the_healthy_server_is_a_false_alarm() -> None:
    alarm = Attempt("default", [_result("EQV-1", Verdict.FAIL, 5)], requests=5)
    document = matrix_document([], [], [alarm])
    assert document["false_alarms"] == ["EQV-1"]


def test_the_page_shows_every_cell_and_escapes() -> None:
    checks = select(["LEN"])
    page = matrix_page(matrix_document([KILLED, SURVIVOR], checks, []))
    assert page.count('<td class="cell') == 2 * len(checks)
    assert "<b>title</b>" not in page
    assert "Survivors: survivor" in page


def test_every_fault_has_chapters_that_answer_for_it() -> None:
    lost = {fault.group for fault in FAULTS.values() if not chapters_of(fault.group)}
    assert lost == set()


def test_there_are_forty_eight_faults_or_more() -> None:
    assert len(FAULTS) >= 48


@pytest.mark.slow
def test_a_fault_is_killed_over_http(tmp_path: Path) -> None:
    campaign = Campaign(select(["LEN"]), BUDGETS["quick"], tmp_path)
    row = campaign.run(FAULTS["usage-without-last-token"], lambda _line: None)
    assert row.killed_by_its_chapter
    assert (row.attempts[0].executions or 0) > 0
    assert chapters_of(row.group)[0] is Chapter.LEN
