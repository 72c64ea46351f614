"""A failing check says what the probe's layers saw, over HTTP, where the server has logprobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.checks.asker import Asker
from harness.checks.budget import BUDGETS
from harness.checks.capabilities import Capabilities
from harness.checks.dialect import Dialect
from harness.checks.readout import add_readout, layer_words
from harness.checks.registry import select
from harness.checks.session import Session
from harness.checks.suite import SuiteOptions, run_suite
from harness.cli.errors import UserError
from harness.cli.probe_readout import command
from harness.mutants.thread_server import thread_server
from harness.oracles.probe import ProbeOracle
from harness.targets.http import HttpTarget
from harness.transcript import Ending, RequestTranscript
from harness.verdict import Failure
from reference_engine.model import LoadedModel
from reference_engine.probe import VARIANTS
from workloads.workload import Workload, WorkloadRequest


def _guess(model: LoadedModel, folder: Path, fault: str | None, check: str) -> str | None:
    name = VARIANTS["eos"].name
    budget = replace(BUDGETS["quick"], shrink_runs=3, confirmations=1)
    with thread_server(model, folder, name, fault=fault) as server:
        report = run_suite(
            lambda: HttpTarget(server.url), SuiteOptions(select([check]), budget, seed=1)
        )
    failures = [f for result in report.results for f in result.failures]
    return failures[0].guess if failures else None


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("decode-position", "positions from"),
        pytest.param("last-key-hidden", "did not see the newest token", marks=pytest.mark.slow),
        pytest.param("neighbour-visible", "attended one token too many", marks=pytest.mark.slow),
    ],
)
def test_a_failure_says_what_the_layers_saw(
    model: LoadedModel, probe_folder: Path, fault: str, words: str
) -> None:
    guess = _guess(model, probe_folder, fault, "EQV-1") or ""
    assert words in guess, guess


async def test_without_logprobs_the_failure_keeps_its_own_words() -> None:
    oracle = ProbeOracle(VARIANTS["eos"])
    request = WorkloadRequest("r", prompt_text="abc", params={"max_tokens": 4})
    failure = Failure(
        "it must hold", "r", actual="x", guess="a slip", workload=Workload((request,))
    )
    # A target that would break the test if it were asked.
    session = Session(Asker(None, Dialect()), oracle, Capabilities())  # type: ignore[arg-type]
    await add_readout(failure, session)
    assert failure.guess == "a slip"
    assert layer_words(oracle, request, RequestTranscript("r", Ending.COMPLETE, 0.0)) == []


def test_the_command_reads_a_healthy_server(
    model: LoadedModel, probe_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with thread_server(model, probe_folder, VARIANTS["eos"].name) as server:
        command(server.url, tokens=24, model=VARIANTS["eos"].name)
    out = capsys.readouterr().out
    assert "every layer read saw what the rule says" in out
    assert "the answer is right" in out


def test_the_command_says_which_server_has_no_gauges(
    model: LoadedModel, probe_folder: Path
) -> None:
    with (
        thread_server(model, probe_folder, VARIANTS["eos"].name) as server,
        pytest.raises(UserError, match="shows no gauges"),
    ):
        command(server.url, variant="dice")
