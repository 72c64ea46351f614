"""A server that dies is said to have died: it lacks no feature, and fails no check it never ran."""

from __future__ import annotations

from typing import Any

import pytest

from harness.checks import suite
from harness.checks.capabilities import Capability
from harness.targets.target import TargetUnusable
from harness.transcript import Ending, RequestTranscript, Transcript
from harness.verdict import CheckResult, Verdict
from reference_engine.probe import ProbeConfig
from tests.checks.conftest import RunChecks
from tests.checks.fake_server import FakeServer
from workloads.workload import Workload


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "PAUSES_S", (0.0, 0.0))


def _broken(workload: Workload, ending: Ending) -> Transcript:
    answers = [RequestTranscript(r.key, ending, 0.0, error="broken") for r in workload.requests]
    return Transcript({answer.key: answer for answer in answers})


class _DiesAsked(FakeServer):
    """Goes away for good when a request with ``field`` comes."""

    def __init__(self, config: ProbeConfig, field: str, ending: Ending) -> None:
        super().__init__(config)
        self.field, self.ending, self.gone = field, ending, False

    async def run(self, workload: Workload) -> Transcript:
        self.gone = self.gone or any(self.field in r.params for r in workload.requests)
        return _broken(workload, self.ending) if self.gone else await super().run(workload)


class _HangsUp(FakeServer):
    """Closes the connection on one question, and answers all others."""

    async def run(self, workload: Workload) -> Transcript:
        if workload.origin == "discovery" and "logit_bias" in workload.requests[0].params:
            return _broken(workload, Ending.DISCONNECTED)
        return await super().run(workload)


class _DiesUnderLoad(FakeServer):
    """Goes away for good with the first workload of ``most`` requests or more."""

    gone = False
    most = 2

    async def run(self, workload: Workload) -> Transcript:
        if self.gone:
            return _broken(workload, Ending.CONNECT_FAILED)
        if len(workload.requests) >= self.most:
            self.gone = True
            return _broken(workload, Ending.DISCONNECTED)
        return await super().run(workload)


class _RefusesAllAfterwards(FakeServer):
    """Stays up, and refuses every request ``refusals`` times from its first crowd on."""

    refusals = 10**9
    refused = None

    async def run(self, workload: Workload) -> Transcript:
        if self.refused is None and len(workload.requests) > 1:
            self.refused = 0
        if self.refused is not None and self.refused < self.refusals:
            self.refused += 1
            return _broken(workload, Ending.REFUSED)
        return await super().run(workload)


class _RefusesForAMoment(_RefusesAllAfterwards):
    """Recovers after as many refusals as the first check and one question need."""

    refusals = 4


class _RefusesCrowds(FakeServer):
    """Accepts no connection beyond its first, and is well otherwise."""

    async def run(self, workload: Workload) -> Transcript:
        crowd = len(workload.requests) > 1
        return _broken(workload, Ending.CONNECT_FAILED) if crowd else await super().run(workload)


@pytest.mark.parametrize("ending", [Ending.CONNECT_FAILED, Ending.DISCONNECTED, Ending.TIMEOUT])
def test_a_server_that_dies_in_discovery_is_unusable(run_checks: RunChecks, ending: Ending) -> None:
    with pytest.raises(TargetUnusable, match=r"went away while logprobs was asked.*start it again"):
        run_checks(_DiesAsked, "EQV-1", field="logprobs", ending=ending)


def test_a_server_that_only_hangs_up_on_a_question_lacks_the_feature(
    run_checks: RunChecks,
) -> None:
    capabilities = run_checks(_HangsUp, "EQV-10").capabilities
    assert capabilities.why_not[Capability.LOGIT_BIAS] == "broken"
    assert Capability.SEED in capabilities.has


def test_a_server_that_dies_in_a_check_ends_the_suite(run_checks: RunChecks) -> None:
    report = run_checks(_DiesUnderLoad, "EQV-1,ISO-1,LEN-1", shrink_runs=2)
    first, *others = report.results
    assert first.verdict is Verdict.FAIL
    assert first.failures
    assert [_said(r) for r in others] == 2 * [
        (Verdict.ERROR, "the server went away during EQV-1", 0)
    ]
    assert report.failed


def test_a_server_that_stays_up_but_answers_nobody_ends_the_suite(run_checks: RunChecks) -> None:
    """Its refusals are no failures of checks that never had a chance."""
    report = run_checks(_RefusesAllAfterwards, "EQV-1,ISO-1,LEN-1", shrink_runs=2)
    first, *others = report.results
    assert first.verdict is Verdict.FAIL
    assert first.reason.endswith("; after this the server no longer answers")
    said = (Verdict.ERROR, "the server answers no plain request since EQV-1: refused: broken", 0)
    assert [_said(r) for r in others] == 2 * [said]


def test_a_server_that_refuses_for_a_moment_is_checked_to_the_end(run_checks: RunChecks) -> None:
    report = run_checks(_RefusesForAMoment, "EQV-1,ISO-1", shrink_runs=2)
    assert report.results[1].verdict is Verdict.PASS


def test_a_server_that_still_answers_is_checked_to_the_end(run_checks: RunChecks) -> None:
    report = run_checks(_RefusesCrowds, "EQV-1,ISO-1", shrink_runs=2)
    assert [r.verdict for r in report.results] == [Verdict.FAIL, Verdict.FAIL]


def _said(result: CheckResult) -> tuple[Any, ...]:
    return result.verdict, result.reason, result.requests
