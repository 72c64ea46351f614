"""The register: ids that stay, sentences that say something, bugs that are cited."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.checks import registry
from harness.checks.catalogue import root_causes
from harness.checks.catalogue_page import checks_page
from harness.checks.registry import Chapter, all_checks, check, select


def test_ids_are_unique_and_well_formed() -> None:
    for check_id, one in all_checks().items():
        assert check_id == one.id == f"{one.chapter}-{one.number}"


def test_every_check_says_what_must_hold_and_which_bugs_it_answers_to() -> None:
    for one in all_checks().values():
        assert re.match(r"[A-Z]|top_[pk] ", one.sentence), one.id
        assert not one.sentence.endswith("."), one.id
        assert one.answers, one.id
        assert all(re.fullmatch(r"[\w./-]+#\d+", bug) for bug in one.answers), one.id


def test_a_taken_id_is_refused() -> None:
    taken = next(iter(all_checks()))
    with pytest.raises(ValueError, match="taken"):
        check(taken, "Again")


@pytest.mark.parametrize("bad", ["EQV", "EQV-0", "eqv-1", "XYZ-1", "EQV-01"])
def test_an_id_that_is_none_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="no check id"):
        check(bad, "No id")


def test_selection_takes_chapters_and_ids_in_order() -> None:
    chosen = [c.id for c in select(["iso-2", "EQV-3", "EQV-1"])]
    assert chosen == ["EQV-1", "EQV-3", "ISO-2"]
    assert {c.chapter for c in select(["LEN"])} == {Chapter.LEN}
    assert len(select([""])) == len(all_checks())
    with pytest.raises(ValueError, match="EQV-1 or chapters"):
        select(["EQV-999"])


def test_the_page_lists_every_check() -> None:
    page = checks_page(list(all_checks().values()))
    assert all(f"| {check_id} |" in page for check_id in all_checks())


def test_every_root_cause_is_answered_by_two_checks_or_more() -> None:
    checks = list(all_checks().values())
    few = [cause.title for cause in root_causes() if len(cause.answered_by(checks)) < 2]
    assert few == []


def test_every_bug_that_a_check_answers_to_is_in_the_catalogue() -> None:
    known = {bug for cause in root_causes() for bug in cause.bugs}
    answered = {bug for one in all_checks().values() for bug in one.answers}
    assert answered - known == set()


def test_there_are_seventy_checks_or_more_in_all_twelve_chapters() -> None:
    assert len(all_checks()) >= 70
    assert {one.chapter for one in all_checks().values()} == set(Chapter)


def test_the_committed_page_is_the_one_that_the_register_gives() -> None:
    """Made by ``isobatch list checks --markdown > harness/checks/README.md``."""
    page = Path(registry.__file__).with_name("README.md").read_text(encoding="utf-8")
    assert page == checks_page(list(all_checks().values()))
