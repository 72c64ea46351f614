"""Ctrl-C during a measured load: the demo and the gate stop at once, as interrupted."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from harness.checks.suite import SuiteOptions
from harness.cli import demo_run
from harness.cli.demo_run import DemoRun
from harness.gate import paired_run
from harness.gate.paired_run import PairedRun
from harness.load.measurement import Measurement, measure
from harness.metrics.row_files import read_requests
from harness.mutants.thread_server import ThreadServer, thread_server
from harness.oracles.probe import ProbeOracle
from harness.results import read_result
from harness.results.run_folder import RunFolder
from harness.targets.http import HttpTarget
from harness.targets.launch import LaunchedServer
from reference_engine.model import load_model
from reference_engine.probe import VARIANTS, export_probe
from workloads.presets import PRESETS
from workloads.workload import Workload

CONFIG = VARIANTS["eos"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadServer]:
    folder = export_probe(CONFIG, tmp_path_factory.mktemp("probe") / "eos")
    with thread_server(load_model(folder), folder, CONFIG.name) as up:
        yield up


@pytest.fixture
def interrupted_measure() -> Callable[..., Awaitable[Measurement]]:
    """`measure`, with one SIGINT to this process when the very first answer has ended."""
    pending = [signal.SIGINT]

    def interrupt(_answer: object) -> None:
        if pending:
            os.kill(os.getpid(), pending.pop())

    async def interrupted(target: HttpTarget, workload: Workload) -> Measurement:
        return await measure(target, workload, on_end=interrupt)

    return interrupted


def test_the_demo_keeps_what_ended(
    server: ThreadServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    interrupted_measure: Callable[..., Awaitable[Measurement]],
) -> None:
    monkeypatch.setattr(demo_run, "measure", interrupted_measure)
    launched = LaunchedServer(server.url, os.getpid(), tmp_path / "log", lambda: None)
    run = RunFolder.create(tmp_path / "runs", kind="demo", command=["isobatch", "demo"])
    demo = DemoRun(run, CONFIG, tmp_path, SuiteOptions(()), Console(quiet=True))
    with pytest.raises(KeyboardInterrupt), run:
        demo._load(launched, ProbeOracle(CONFIG))
    assert read_result(run.path)["status"] == "interrupted"
    assert 1 <= len(read_requests(run.path)) <= 64


def test_the_gate_counts_no_half_measured_pair(
    server: ThreadServer,
    monkeypatch: pytest.MonkeyPatch,
    interrupted_measure: Callable[..., Awaitable[Measurement]],
) -> None:
    monkeypatch.setattr(paired_run, "measure", interrupted_measure)
    paired = PairedRun(server.url, server.url, PRESETS["ragged"], pairs=1, model=CONFIG.name)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(paired.run())
    assert paired.done == []
