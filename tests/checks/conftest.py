"""Fixtures of the checks' tests: a way to run some checks on a fake server, and the real probe."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.checks.budget import BUDGETS
from harness.checks.registry import select
from harness.checks.suite import SuiteOptions, SuiteReport, run_suite
from reference_engine.probe import VARIANTS, export_probe
from tests.checks.fake_server import FakeServer

if TYPE_CHECKING:
    from reference_engine.model import LoadedModel

RunChecks = Callable[..., SuiteReport]


@pytest.fixture
def run_checks() -> RunChecks:
    """``run_checks(FakeServerClass, "EQV,ISO-1", variant=, shrink_runs=, **server_options)``.

    The budget is quick without its limits of time, so that a busy machine changes no outcome.
    """

    def run(
        server: type[FakeServer],
        only: str,
        variant: str = "eos",
        shrink_runs: int = BUDGETS["quick"].shrink_runs,
        **options: object,
    ) -> SuiteReport:
        config = VARIANTS[variant]
        budget = replace(
            BUDGETS["quick"], check_s=math.inf, shrink_s=math.inf, shrink_runs=shrink_runs
        )
        checks = select(only.split(","))
        return run_suite(lambda: server(config, **options), SuiteOptions(checks, budget, seed=1))

    return run


@pytest.fixture(scope="session")
def probe_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported eos probe."""
    return export_probe(VARIANTS["eos"], tmp_path_factory.mktemp("probe") / "eos")


@pytest.fixture(scope="session")
def model(probe_folder: Path) -> LoadedModel:
    """The eos probe, loaded: made once, for every server in a thread."""
    from reference_engine.model import load_model

    return load_model(probe_folder)
