"""The kill matrix: what it counts, and a page that shows it; the campaign on one real fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.checks.budget import BUDGETS
from harness.checks.registry import Chapter, all_checks, select
from harness.mutants.attempt import Attempt, MutantRow
from harness.mutants.campaign import Campaign
from harness.mutants.matrix import matrix_document, matrix_page
from harness.mutants.record import MatrixRecord
from harness.mutants.settings import SETTINGS, TIMED, chapters_of, settings_of
from harness.verdict import CheckResult, Verdict
from reference_engine.faults import FAULTS


def _result(check_id: str, verdict: Verdict, requests: int) -> CheckResult:
    return CheckResult(check_id, verdict, "s", "why", requests=requests, first_failure_requests=2)


def _row(name: str, *attempts: Attempt) -> MutantRow:
    return MutantRow(name, "a <b>title</b>", "length and count contracts", ("x#1",), list(attempts))


KILLED = _row(
    "killed",
    Attempt("default", results=[_result("LEN-1", Verdict.PASS, 10)], executions=3, requests=10),
    Attempt("small-pool", results=[_result("LEN-2", Verdict.FAIL, 5)], executions=3, requests=5),
)
SURVIVOR = _row(
    "survivor", Attempt("default", results=[_result("LEN-1", Verdict.PASS, 10)], executions=0)
)


def test_the_document_counts_kills_survivors_and_requests() -> None:
    checks = list(all_checks().values())
    document = matrix_document([KILLED.to_json(), SURVIVOR.to_json()], checks, [])
    assert document["killed"] == 1
    assert document["killed_by_own_chapter"] == 1
    assert document["survivors"] == ["survivor"]
    assert document["never_executed"] == ["survivor"]
    assert KILLED.requests_to_detection == 12
    assert document["median_requests_to_detection"] == 12


def test_a_server_that_could_not_be_judged_is_no_kill() -> None:
    broken = _row("broken", Attempt("default", error="the server did not start"))
    document = matrix_document([broken.to_json()], [], [])
    assert document["killed"] == 0
    assert document["not_judged"] == ["broken"]
    assert document["survivors"] == []


def test_a_check_that_fails_before_the_fault_ran_is_no_kill() -> None:
    early = Attempt("default", results=[_result("LEN-2", Verdict.FAIL, 5)], executions=0)
    row = _row("early", early)
    assert not row.killed
    assert row.requests_to_detection is None


def test_rows_are_added_to_what_is_there_in_the_order_of_the_faults(tmp_path: Path) -> None:
    record = MatrixRecord(tmp_path, select(["LEN"]), ["survivor", "killed"])
    assert record.add_row(KILLED.to_json())["not_run"] == ["survivor"]
    document = MatrixRecord(tmp_path, select(["LEN"]), ["survivor", "killed"]).add_row(
        SURVIVOR.to_json()
    )
    assert [row["fault"] for row in document["rows"]] == ["survivor", "killed"]
    assert record.killed() == {"killed"}, "a survivor may have run out of time: it is tried again"
    record.add_healthy(Attempt("default", "standard", 3).healthy_json())
    assert record.runs() == {("default", "standard", 3)}


def test_every_root_cause_is_served_where_its_feature_is_at_work() -> None:
    for fault in FAULTS.values():
        assert all(setting in SETTINGS for setting in settings_of(fault.group))
    assert settings_of("preemption and resume")[0].name == "small-pool"
    assert settings_of("sliding window and hybrid cache edges")[0].variant == "window"


def test_a_failure_of_the_healthy_server_is_a_false_alarm() -> None:
    alarm = Attempt("default", results=[_result("EQV-1", Verdict.FAIL, 5)], requests=5)
    document = matrix_document([], [], [alarm.healthy_json()])
    assert document["false_alarms"] == ["EQV-1"]


def test_the_page_shows_every_cell_and_escapes() -> None:
    checks = select(["LEN"])
    page = matrix_page(matrix_document([KILLED.to_json(), SURVIVOR.to_json()], checks, []))
    assert page.count('<td class="cell') == 2 * len(checks)
    assert "<b>title</b>" not in page
    assert "Survivors: survivor" in page


def test_every_fault_has_chapters_that_answer_for_it() -> None:
    lost = {fault.group for fault in FAULTS.values() if not chapters_of(fault.group)}
    assert lost == set()


def test_there_are_forty_eight_faults_or_more() -> None:
    assert len(FAULTS) >= 48


def test_a_check_of_times_is_no_killer_of_a_fault_that_is_not_about_time(tmp_path: Path) -> None:
    campaign = Campaign(list(all_checks().values()), [BUDGETS["quick"]], tmp_path)

    def chapters_run(name: str) -> set[Chapter]:
        plan = campaign._plan(FAULTS[name])
        return {check.chapter for _, checks, _ in plan for check in checks}

    assert chapters_run("usage-without-last-token") == set(Chapter) - TIMED
    assert chapters_run("no-kv-cache") == set(Chapter)


@pytest.mark.slow
def test_a_request_that_runs_on_for_nobody_is_seen(tmp_path: Path) -> None:
    """Though the probe ends most answers early: the forgotten ones are asked to go on."""
    row = Campaign(select(["CAN-8"]), [BUDGETS["quick"]], tmp_path).run(
        FAULTS["abort-ignored"], lambda _line: None
    )
    assert row.killed_by_its_chapter


@pytest.mark.slow
def test_a_fault_is_killed_over_http(tmp_path: Path) -> None:
    campaign = Campaign(select(["LEN"]), [BUDGETS["quick"]], tmp_path)
    row = campaign.run(FAULTS["usage-without-last-token"], lambda _line: None)
    assert row.killed_by_its_chapter
    assert (row.attempts[0].executions or 0) > 0
    assert chapters_of(row.group)[0] is Chapter.LEN
