"""A small run with steps and rows, as an engine with a budget of 16 tokens would make it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.metrics.request_row import to_row
from harness.report.step import ScheduledTokens, Step
from harness.results import RunFolder
from harness.transcript import (
    ChoiceTranscript,
    Ending,
    RequestTranscript,
    TokenChunk,
    Usage,
)
from harness.verdict import CheckResult, Failure, Verdict
from workloads.workload import Workload, WorkloadRequest

WORKLOAD = Workload((WorkloadRequest("a", prompt_ids=(1, 2)),), origin="test", seed=7)

STEPS = (
    Step(0, 10.0, 10.1, (ScheduledTokens("x-a", "prefill", 0, 16),)),
    Step(
        1,
        10.1,
        10.2,
        (ScheduledTokens("x-a", "prefill", 16, 4), ScheduledTokens("x-b", "prefill", 0, 12)),
    ),
    Step(
        2,
        10.2,
        10.3,
        (
            ScheduledTokens("x-a", "decode", 20, 1),
            ScheduledTokens("x-b", "prefill", 12, 9),
            ScheduledTokens("x-c", "prefill", 0, 6),
        ),
    ),
    Step(3, 10.3, 10.35, (ScheduledTokens("x-a", "decode", 21, 1),)),
)


def step_json(step: Step) -> dict[str, Any]:
    return {
        "index": step.index,
        "t_start_s": step.t_start_s,
        "t_end_s": step.t_end_s,
        "token_budget": 16,
        "page_size": 16,
        "scheduled": [
            {"request_id": s.request_id, "kind": s.kind, "start": s.start, "tokens": s.tokens}
            for s in step.scheduled
        ],
    }


def request_of(key: str, first_s: float, chunks: int) -> RequestTranscript:
    arrived = [TokenChunk(first_s + 0.1 * i, tokens=1) for i in range(chunks)]
    return RequestTranscript(
        key,
        Ending.COMPLETE,
        t_due_s=0.0,
        t_sent_s=0.01,
        t_end_s=arrived[-1].t_s,
        choices={0: ChoiceTranscript(arrived, ["length"])},
        usage=Usage(20, chunks),
        status=200,
        response_id=f"x-{key}",
    )


def result_of(check_id: str, verdict: Verdict, **fields: Any) -> CheckResult:
    return CheckResult(check_id, verdict, f"the property of {check_id}", **fields)


def make_run(parent: Path, *, hostile: str = "") -> Path:
    """A complete run folder with every part that the page can show."""
    with RunFolder.create(parent, kind="demo", command=["isobatch", "demo", hostile]) as run:
        run.set_server(name=f"isobatch{hostile}", url="http://127.0.0.1:1", model=hostile or "m")
        run.add_workload(WORKLOAD, "tiny")
        for step in STEPS:
            row = step_json(step)
            for scheduled in row["scheduled"]:
                scheduled["request_id"] += hostile
            run.append("steps", row)
        for key, first_s in (("a", 0.2), ("b", 0.3)):
            run.append("requests", to_row(request_of(key + hostile, first_s, 4)))
        run.add_verdict(result_of("EQV-1", Verdict.PASS, evidence={"overlaps": 3.0}))
        failure = Failure(
            "s", "a", [12], [9], 4, f"guess{hostile}", WORKLOAD, detail=f"token 4{hostile}"
        )
        run.add_verdict(result_of("ISO-1", Verdict.FAIL, failures=[failure], reason=hostile))
        run.add_metrics(
            [
                {
                    "id": "ttft.response",
                    "statistic": "p99",
                    "unit": "s",
                    "value": None,
                    "count": 2,
                    "low": None,
                    "high": None,
                    "confidence": None,
                    "window": "whole",
                    "workload_sha256": WORKLOAD.sha256,
                }
            ]
        )
    return run.path
