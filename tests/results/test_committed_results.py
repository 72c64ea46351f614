"""The results in the repository are what they say they are."""

from pathlib import Path

from harness.results.verify import verify

RESULTS = Path(__file__).resolve().parents[2] / "results"


def test_the_committed_results_verify() -> None:
    """Schema, digests, workloads, index and quoted numbers: `isobatch results verify results`."""
    found = verify(RESULTS)
    assert found.problems == ()
    assert found.runs >= 2
    assert found.quotations >= 5
