"""The determinism grade of a run: how far the same request gives the same answer under load.

A: log-probabilities are bitwise those of the request alone; B: the tokens are; C: they differ only
at near-ties; D: they differ otherwise. It is read off the verdicts of the DET checks and nothing
else, so a stored run can be graded later. A run that did not compare loaded with unloaded answers,
or whose inverse control failed (a comparison that cannot fail proves nothing), has no grade.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from harness.results.document import VerdictRow
from harness.verdict import Verdict

Grade = Literal["A", "B", "C", "D"]

_ALONE: Final = "DET-1"
_TOKENS_UNDER_LOAD: Final = "DET-2"
_LOGPROBS_UNDER_LOAD: Final = "DET-3"
_INVERSE_CONTROL: Final = "DET-4"
_WHOLE: Final = "DET-5"
_COMPARISONS: Final = (_ALONE, _TOKENS_UNDER_LOAD, _LOGPROBS_UNDER_LOAD, _WHOLE)


def determinism_grade(verdicts: Sequence[VerdictRow]) -> Grade | None:
    """The grade that these verdicts support, None where they support none."""
    rows = {row["check_id"]: row for row in verdicts}
    found = {check_id: row["verdict"] for check_id, row in rows.items()}
    if found.get(_INVERSE_CONTROL) == Verdict.FAIL:
        return None
    compared = {found.get(check_id) for check_id in _COMPARISONS}
    if Verdict.FAIL in compared:
        return "D"
    if found.get(_TOKENS_UNDER_LOAD) not in (Verdict.PASS, Verdict.TIE_FLIPS):
        return None
    if Verdict.TIE_FLIPS in compared:
        return "C"
    if found.get(_LOGPROBS_UNDER_LOAD) == Verdict.PASS:
        evidence = rows[_LOGPROBS_UNDER_LOAD]["evidence"]
        if evidence.get("bitwise_equal", 0) and not evidence.get("bitwise_different", 0):
            return "A"
    return "B"
