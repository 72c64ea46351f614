"""Pressure: the checks of preemption and eviction bring both about where the cache is small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.checks.budget import BUDGETS
from harness.checks.registry import select
from harness.checks.suite import SuiteOptions, SuiteReport, run_suite
from harness.mutants.settings import SMALL_POOL
from harness.mutants.thread_server import thread_server
from harness.targets.http import HttpTarget
from harness.verdict import Verdict
from reference_engine.engine import EngineConfig
from reference_engine.probe import VARIANTS

if TYPE_CHECKING:
    from reference_engine.model import LoadedModel

UNDER_PRESSURE = ["SCH-1", "SCH-2", "SCH-3", "CCH-6", "LEN-9"]


def _judged(model: LoadedModel, folder: Path, config: EngineConfig) -> SuiteReport:
    with thread_server(model, folder, VARIANTS["eos"].name, config) as server:
        options = SuiteOptions(select(UNDER_PRESSURE), BUDGETS["quick"])
        return run_suite(lambda: HttpTarget(server.url), options)


def test_a_small_pool_preempts_and_evicts(model: LoadedModel, probe_folder: Path) -> None:
    config = replace(EngineConfig(), **SMALL_POOL.engine)
    report = _judged(model, probe_folder, config)
    found = {r.check_id: (r.verdict, r.reason) for r in report.results}
    assert found == dict.fromkeys(found, (Verdict.PASS, ""))
    assert report.capabilities.context_limit == (config.num_pages - 1) * config.page_size + 1


def test_the_pool_of_the_recipe_preempts_and_evicts(model: LoadedModel, probe_folder: Path) -> None:
    report = _judged(model, probe_folder, EngineConfig(num_pages=260))
    found = {r.check_id: (r.verdict, r.reason) for r in report.results}
    assert found == dict.fromkeys(found, (Verdict.PASS, ""))
