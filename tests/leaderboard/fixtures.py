"""A folder of runs of several servers, one of which did not pass and one was never checked."""

from __future__ import annotations

from pathlib import Path

from harness.results import RunFolder
from harness.results.document import MetricRow
from harness.verdict import CheckResult, Failure, Verdict
from workloads.workload import Workload, WorkloadRequest

WORKLOAD = Workload((WorkloadRequest("a", prompt_ids=(1, 2)),), origin="test", seed=7)
CHAPTERS = ("EQV", "ISO", "STR", "LEN")


def metric(metric_id: str, statistic: str, value: float | None, unit: str) -> MetricRow:
    return {
        "id": metric_id,
        "statistic": statistic,
        "unit": unit,
        "value": value,
        "count": 64,
        "low": None,
        "high": None,
        "confidence": None,
        "window": "whole",
        "workload_sha256": WORKLOAD.sha256,
    }


def check_run(parent: Path, name: str, version: str, failing: tuple[str, ...] = ()) -> Path:
    """A conformance run with three checks a chapter; those named fail."""
    with RunFolder.create(parent, kind="check", command=["isobatch", "check"]) as run:
        run.set_server(name=name, version=version, model="probe", dtype="float32")
        for chapter in CHAPTERS:
            for number in (1, 2, 3):
                check_id = f"{chapter}-{number}"
                result = CheckResult(check_id, Verdict.PASS, f"what {check_id} says", requests=4)
                if check_id in failing:
                    result.verdict, result.reason = Verdict.FAIL, "token 4 is 9, should be 12"
                    result.failures = [
                        Failure("says", "a", [12], [9], 4, workload=WORKLOAD, detail=result.reason)
                    ]
                elif number == 3 and chapter == "LEN":
                    result.verdict, result.reason = Verdict.UNSUPPORTED, "no eos"
                run.add_verdict(result)
    return run.path


def bench_run(parent: Path, name: str, version: str, rate: float, tpot_s: float | None) -> Path:
    """A measured run."""
    with RunFolder.create(parent, kind="bench", command=["isobatch", "bench"]) as run:
        run.set_server(name=name, version=version, model="probe", dtype="float32")
        run.add_workload(WORKLOAD, "ragged")
        run.add_metrics(
            [
                metric("throughput.output", "value", rate, "tokens/s"),
                metric("tpot", "p50", tpot_s, "s"),
                metric("ttft.response", "p50", 0.2, "s"),
                metric("chunk_gap", "p99", None, "s"),
            ]
        )
    return run.path


def make_results(parent: Path) -> Path:
    """Alpha passes, beta fails two checks, gamma was only measured."""
    check_run(parent, "alpha", "1.0")
    check_run(parent, "beta", "2.1", failing=("EQV-2", "STR-1"))
    bench_run(parent, "alpha", "1.0", 300.0, 0.050)
    bench_run(parent, "beta", "2.1", 500.0, 0.020)
    bench_run(parent, "gamma", "", 100.0, None)
    return parent
