"""The determinism grade: each letter needs its evidence, and no evidence gives no letter."""

from pathlib import Path

import pytest

from harness.leaderboard.standings import read_standings
from harness.results import RunFolder, read_result
from harness.verdict import CheckResult, Verdict

PASS, FAIL, TIES = Verdict.PASS, Verdict.FAIL, Verdict.TIE_FLIPS
UNSUPPORTED, INCONCLUSIVE = Verdict.UNSUPPORTED, Verdict.INCONCLUSIVE
EQUAL = {"bitwise_equal": 12.0}


def graded(
    parent: Path,
    found: dict[str, Verdict],
    evidence: dict[str, float] | None = None,
) -> str | None:
    """The grade in the document of a run with these verdicts, which its standing must share."""
    with RunFolder.create(parent, kind="check", command=["isobatch", "check"]) as run:
        for check_id, verdict in found.items():
            shown = (evidence or {}) if check_id == "DET-3" else {}
            run.add_verdict(CheckResult(check_id, verdict, "holds", evidence=dict(shown)))
    grade = read_result(run.path)["determinism_grade"]
    (row,) = read_standings(parent).servers
    assert row.grade == grade
    return grade


@pytest.mark.parametrize(
    ("found", "evidence", "grade"),
    [
        ({"DET-2": PASS, "DET-3": PASS, "DET-4": PASS}, EQUAL, "A"),
        ({"DET-2": PASS, "DET-3": PASS}, EQUAL | {"bitwise_different": 1.0}, "B"),
        ({"DET-2": PASS, "DET-3": PASS}, {}, "B"),
        ({"DET-2": PASS, "DET-3": UNSUPPORTED}, {}, "B"),
        ({"DET-2": TIES, "DET-3": TIES}, EQUAL, "C"),
        ({"DET-1": TIES, "DET-2": PASS}, {}, "C"),
        ({"DET-2": FAIL, "DET-3": PASS}, EQUAL, "D"),
        ({"DET-2": PASS, "DET-3": PASS, "DET-5": FAIL}, EQUAL, "D"),
        ({"DET-2": INCONCLUSIVE, "DET-3": UNSUPPORTED}, {}, None),
        ({"DET-2": PASS, "DET-3": PASS, "DET-4": FAIL}, EQUAL, None),
        ({"EQV-1": PASS}, {}, None),
    ],
)
def test_each_letter_needs_its_evidence(
    tmp_path: Path, found: dict[str, Verdict], evidence: dict[str, float], grade: str | None
) -> None:
    """The table of the module's docstring."""
    assert graded(tmp_path, found, evidence) == grade
