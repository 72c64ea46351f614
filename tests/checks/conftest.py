"""Fixtures of the checks' tests: the probe, and a way to run some checks on a fake server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.checks.registry import select
from harness.checks.suite import SuiteOptions, SuiteReport, run_suite
from reference_engine.probe import VARIANTS
from tests.checks.fake_server import FakeServer

RunChecks = Callable[..., SuiteReport]


@pytest.fixture
def run_checks() -> RunChecks:
    """``run_checks(FakeServerClass, "EQV,ISO-1", variant=, **server_options)``."""

    def run(
        server: type[FakeServer], only: str, variant: str = "eos", **options: object
    ) -> SuiteReport:
        config = VARIANTS[variant]
        return run_suite(
            lambda: server(config, **options), SuiteOptions(select(only.split(",")), seed=1)
        )

    return run
