"""API: requests of one name, on servers that keep them apart, mix them up, or take no names."""

from __future__ import annotations

import pytest

from harness.verdict import Verdict
from tests.checks.conftest import RunChecks
from tests.checks.fake_server import FakeServer, Row
from workloads.workload import WorkloadRequest


class Named(FakeServer):
    """No defect: its ids hold the client's name and a number."""

    def response_id(self, request: WorkloadRequest) -> str:
        name = request.headers.get("X-Request-Id") or request.params.get("request_id", "")
        return f"{super().response_id(request)}-{name}"


class Overwriting(Named):
    """Of two requests of one name the later one's prompt stands for both."""

    def visible(self, row: Row, others: list[Row]) -> tuple[int, ...]:
        name = row.request.headers.get("X-Request-Id")
        same = [r for r in others if name and r.request.headers.get("X-Request-Id") == name]
        return (*(same[-1] if same else row).prompt_ids, *row.token_ids)


@pytest.mark.parametrize(
    ("server", "verdict"),
    [
        (Named, Verdict.PASS),
        (Overwriting, Verdict.FAIL),
        (FakeServer, Verdict.UNSUPPORTED),
    ],
)
def test_one_header_for_several_requests(
    run_checks: RunChecks, server: type[FakeServer], verdict: Verdict
) -> None:
    (result,) = run_checks(server, "API-13").results
    assert result.verdict is verdict, result.reason
