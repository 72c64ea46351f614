"""What other tools read: well-formed, complete, and honest about what is undefined."""

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.results.document import MetricRow, ResultDocument, read_result
from harness.results.exporters import EXPORTERS
from harness.results.run_folder import RunFolder
from harness.verdict import CheckResult, Failure, Verdict


def metric(metric_id: str, statistic: str, value: float | None, unit: str = "s") -> MetricRow:
    return {
        "id": metric_id,
        "statistic": statistic,
        "unit": unit,
        "value": value,
        "count": 10,
        "low": None if value is None else value / 2,
        "high": None if value is None else value * 2,
        "confidence": None if value is None else 0.95,
        "window": "whole",
        "workload_sha256": None,
    }


@pytest.fixture
def document(tmp_path: Path) -> ResultDocument:
    with RunFolder.create(tmp_path, kind="bench", command=["isobatch"]) as run:
        run.set_server(name="=cmd()", model='a "model" <&>\x00')
        for number, verdict in enumerate(Verdict, 1):
            result = CheckResult(f"EQV-{number}", verdict, "holds", reason="because \x1b")
            if verdict is Verdict.FAIL:
                result.failures = [Failure("holds", expected=[1], actual=[2], detail="is 2 not 1")]
            run.add_verdict(result)
        run.add_metrics(
            [
                metric("ttft.response", "mean", 0.25),
                metric("ttft.response", "p99", None),
                metric("throughput.output", "value", 300.0, "tokens/s"),
                metric("tpot", "p50", 0.01),
                {**metric("requests.attempted", "value", 10.0, "1"), "window": None},
            ]
        )
    return read_result(run.path)


def test_junit_counts_every_verdict_as_what_it_is(document: ResultDocument) -> None:
    """Six verdicts: two pass, one fails, one errors, two are skipped with their reason."""
    root = ElementTree.fromstring(EXPORTERS["junit"](document))
    assert root.attrib["tests"] == "6"
    counted = {name: root.attrib[name] for name in ("failures", "errors", "skipped")}
    assert counted == {"failures": "1", "errors": "1", "skipped": "2"}
    cases = {case.attrib["name"].split()[0]: case for case in root.iter("testcase")}
    assert cases["EQV-1"].find("failure") is None
    failure = cases["EQV-2"].find("failure")
    assert failure is not None
    assert "should be [1]" in (failure.text or "")
    skipped = cases["EQV-4"].find("skipped")
    assert skipped is not None
    assert skipped.attrib["message"].startswith("unsupported: because")


def test_csv_has_a_line_a_number_and_no_formula(document: ResultDocument) -> None:
    """Undefined is empty, and a name cannot become a spreadsheet formula."""
    rows = list(csv.DictReader(io.StringIO(EXPORTERS["csv"](document))))
    assert len(rows) == 5
    assert rows[1]["value"] == ""
    assert rows[0]["server"] == "'=cmd()"
    assert float(rows[2]["value"]) == 300.0


def test_the_action_gets_one_direction_a_file(document: ResultDocument) -> None:
    """Times in one list, rates in the other, undefined numbers in none."""
    smaller = json.loads(EXPORTERS["github-action-benchmark-smaller"](document))
    bigger = json.loads(EXPORTERS["github-action-benchmark-bigger"](document))
    assert [e["name"] for e in smaller] == ["ttft.response mean (whole)", "tpot p50 (whole)"]
    assert [e["value"] for e in bigger] == [300.0]
    assert all({"name", "unit", "value"} <= set(e) for e in smaller + bigger)


def test_the_llmd_report_has_only_statistics_with_a_mean(document: ResultDocument) -> None:
    """TPOT without a mean is left out; the rate stands as a mean in the report's own unit."""
    report = json.loads(EXPORTERS["llm-d"](document))
    assert report["version"] == "0.2"
    assert report["run"]["uid"] == document["run_id"]
    aggregate = report["results"]["request_performance"]["aggregate"]
    assert aggregate["latency"] == {"time_to_first_token": {"units": "s", "mean": 0.25}}
    assert aggregate["throughput"]["output_token_rate"] == {"units": "tokens/s", "mean": 300.0}
    assert aggregate["requests"]["total"] == 10


@pytest.mark.parametrize("name", EXPORTERS)
def test_an_empty_run_can_be_exported(name: str, tmp_path: Path) -> None:
    """A run that was interrupted at once is still a document."""
    run = RunFolder.create(tmp_path, kind="check", command=[])
    run.finish("interrupted")
    assert EXPORTERS[name](read_result(run.path))
