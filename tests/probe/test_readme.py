"""The numbers on the probe's page are those of the results that it links to."""

from pathlib import Path

from harness.results.quotation import wrong_quotations

PAGE = Path(__file__).resolve().parents[2] / "reference_engine" / "probe" / "README.md"


def test_no_number_is_misquoted() -> None:
    wrong, count = wrong_quotations(PAGE)
    assert wrong == []
    assert count >= 5
