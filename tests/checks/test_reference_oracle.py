"""The reference and the self oracle over HTTP on a trained-like model: healthy servers pass, exact
or not batch invariant, with ids or with text alone; faulty ones fail.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.checks.budget import BUDGETS
from harness.checks.registry import select
from harness.checks.suite import SuiteOptions, SuiteReport, run_suite
from harness.mutants.thread_server import thread_server
from harness.oracles.choose import OracleChoice
from harness.targets.http import HttpTarget
from harness.targets.target import TargetUnusable
from harness.verdict import Verdict
from tests.checks.rounding_server import inexact_model, write_checkpoint

if TYPE_CHECKING:
    from reference_engine.model import LoadedModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WELL = {Verdict.PASS, Verdict.TIE_FLIPS}
BUDGET = replace(
    BUDGETS["quick"], check_s=math.inf, shrink_s=math.inf, shrink_runs=1, confirmations=0
)
TEXT_ONLY = {"return_token_ids": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("tiny") / "model", spread=0.15)


@pytest.fixture(scope="module")
def exact(folder: Path) -> LoadedModel:
    from reference_engine.model import load_model

    return load_model(folder)


@pytest.fixture(scope="module")
def rounding(folder: Path) -> LoadedModel:
    return inexact_model(folder)


def _judged(
    model: LoadedModel,
    folder: Path,
    oracle: str,
    only: str,
    *,
    fault: str | None = None,
    params: dict[str, None] | None = None,
) -> SuiteReport:
    choice = OracleChoice(oracle, reference=str(folder) if oracle == "reference" else None)
    options = SuiteOptions(select(only.split(",")), BUDGET, 1, choice, params or {})
    with thread_server(model, folder, "tiny", fault=fault) as server:
        return run_suite(lambda: HttpTarget(server.url, model="tiny"), options)


def _verdicts(report: SuiteReport) -> dict[str, Verdict]:
    return {result.check_id: result.verdict for result in report.results}


@pytest.mark.parametrize("params", [{}, TEXT_ONLY], ids=["ids", "text"])
def test_an_exact_server_is_exact_to_the_reference(
    exact: LoadedModel, folder: Path, params: dict[str, None]
) -> None:
    report = _judged(exact, folder, "reference", "EQV-1,EQV-10,STR-5,LEN-3", params=params)
    assert set(_verdicts(report).values()) == {Verdict.PASS}
    assert "ties up to 0.0001 nat" in report.oracle


def test_a_healthy_server_in_bf16_flips_ties_and_no_more(
    rounding: LoadedModel, folder: Path
) -> None:
    for oracle in ("reference", "self"):
        report = _judged(rounding, folder, oracle, "EQV-1,LOG-10")
        assert set(_verdicts(report).values()) <= WELL, report.results
        assert Verdict.TIE_FLIPS in _verdicts(report).values()
        assert "tokens flipped when calm" in report.oracle


@pytest.mark.parametrize("oracle", ["reference", "self"])
def test_a_server_in_bf16_that_shows_a_neighbour_fails(
    rounding: LoadedModel, folder: Path, oracle: str
) -> None:
    report = _judged(rounding, folder, oracle, "EQV-1", fault="neighbour-visible")
    assert _verdicts(report)["EQV-1"] is Verdict.FAIL


def test_another_model_than_the_one_served_is_refused(
    exact: LoadedModel, folder: Path, tmp_path: Path
) -> None:
    other = write_checkpoint(tmp_path / "other", spread=0.3)
    choice = OracleChoice("reference", reference=str(other))
    options = SuiteOptions(select(["EQV-1"]), BUDGET, 1, choice)
    refused = pytest.raises(TargetUnusable, match="does not serve other")
    with thread_server(exact, folder, "tiny") as server, refused:
        run_suite(lambda: HttpTarget(server.url, model="tiny"), options)
