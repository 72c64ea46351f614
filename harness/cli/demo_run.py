"""The stages of `isobatch demo` between a built probe and a finished run folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from harness.checks.suite import Progress, SuiteOptions, run_suite
from harness.cli.verdict_table import VerdictTable
from harness.judged_load import BackgroundLoad, JudgedLoad, OraclePrompts, judged
from harness.load.measurement import Measurement, measure
from harness.metrics.request_row import to_row
from harness.oracles.probe import ProbeOracle
from harness.report.quantity import quantity
from harness.results.document import MetricRow
from harness.results.environment import environment, tool
from harness.results.run_folder import RunFolder
from harness.targets.http import HttpTarget
from harness.targets.launch import LaunchedServer, launched, own_server
from harness.transcript import Transcript
from harness.verdict import CheckResult, Verdict
from reference_engine.probe import ProbeConfig
from workloads.presets import PRESETS
from workloads.workload import Workload, WorkloadRequest

TRACED_STEPS: Final = 4096
TOKEN_BUDGET: Final = 64
CROWD: Final = 4
GOOD: Final = frozenset({Verdict.PASS, Verdict.TIE_FLIPS})

# Prompt and output tokens of the opening: few enough that a step's mask fits in a picture.
_OPENING: Final = ((24, 16), (9, 24), (37, 12), (13, 20), (18, 8), (30, 10), (7, 12), (22, 6))


@dataclass(slots=True)
class DemoRun:
    """One demo: serve, load and judge, check under load, record all of it in ``run``."""

    run: RunFolder
    config: ProbeConfig
    model_dir: Path
    options: SuiteOptions
    console: Console
    fault: str | None = None

    def passes(self) -> bool:
        """Run all stages; whether every answer was exact and every check passed."""
        oracle = ProbeOracle(self.config)
        flags = ["--port", "0", "--name", oracle.config.name]
        flags += ["--token-budget", str(TOKEN_BUDGET), "--trace-steps", str(TRACED_STEPS)]
        flags += ["--fault", self.fault] if self.fault else []
        log = self.run.path / "server.log"
        command = own_server(str(self.model_dir), *flags)
        with launched(command, log=log, environment=one_thread()) as server:
            self.console.print(f"server   {server.url}, process {server.pid}")
            self._record_server(server, oracle, flags)
            load = self._load(server, oracle)
            results, background = self._check(server, oracle)
        return (
            load.all_exact
            and background.all_exact
            and bool(results)
            and all(result.verdict in GOOD for result in results)
        )

    def _record_server(self, server: LaunchedServer, oracle: ProbeOracle, flags: list[str]) -> None:
        self.run.set_server(
            name="isobatch",
            version=tool()["version"],
            url=server.url,
            model=oracle.config.name,
            dtype="float32",
            flags=flags,
            hardware=environment()["cpu_model"],
            sources=dict.fromkeys(("name", "version", "url", "model", "dtype", "flags"), "given"),
        )

    def _load(self, server: LaunchedServer, oracle: ProbeOracle) -> JudgedLoad:
        """A small opening for the picture of the mask, then the ragged load that is measured.

        Raises KeyboardInterrupt after Ctrl-C during the measurement.
        """
        opening = opening_workload(oracle, self.options.seed)
        ragged = PRESETS["ragged"].build(OraclePrompts(oracle), self.options.seed)

        async def stages() -> tuple[Transcript, Measurement, dict[str, Any] | None]:
            target = HttpTarget(server.url, model=oracle.config.name)
            try:
                answers = await target.run(opening)
                measured = await measure(target, ragged)
            finally:
                await target.close()
            traced = None if measured.interrupted else await traced_steps(server.url)
            return answers, measured, traced

        answers, measured, traced = asyncio.run(stages())
        self._record_load({"opening": opening, "ragged": ragged}, measured, traced)
        if measured.interrupted:
            raise KeyboardInterrupt  # what had ended is in the run folder
        load = asyncio.run(judged(opening, answers, oracle))
        answers = Transcript({request.key: request for request in measured.requests})
        load.add(asyncio.run(judged(ragged, answers, oracle)))
        self._tell_load(load, measured.metrics(ragged))
        return load

    def _record_load(
        self, workloads: dict[str, Workload], measured: Measurement, traced: dict[str, Any] | None
    ) -> None:
        for name, workload in workloads.items():
            self.run.add_workload(workload, name)
        if traced is not None:
            facts = {key: traced.get(key) for key in ("token_budget", "page_size")}
            for step in traced["steps"]:
                self.run.append("steps", {**step, **facts})
        for request in measured.requests:
            self.run.append("requests", to_row(request))
        self.run.add_metrics(measured.metrics(workloads["ragged"]))
        self.run.set_client_health(measured.health.to_json())

    def _tell_load(self, load: JudgedLoad, rows: list[MetricRow]) -> None:
        self.console.print(f"load     {load.exact} of {load.answers} answers exact, token by token")
        for complaint in complaints(load):
            self.console.print(f"         {complaint}")
        self.console.print(measured_table(rows))

    def _check(
        self, server: LaunchedServer, oracle: ProbeOracle
    ) -> tuple[list[CheckResult], JudgedLoad]:
        """The checks, while a ragged load of a few streams goes on."""
        recipe = PRESETS["ragged"].resized(requests=4 * CROWD, concurrency=CROWD)
        prompts = OraclePrompts(oracle)
        table = VerdictTable(self.options.checks, self.console)

        def open_target() -> HttpTarget:
            return HttpTarget(server.url, model=oracle.config.name)

        def finished(result: CheckResult) -> None:
            self.run.add_verdict(result)
            table.finished(result)

        def workload_of(number: int) -> Workload:
            return recipe.build(prompts, self.options.seed + 1 + number)

        with BackgroundLoad(open_target, workload_of, oracle) as background, table:
            progress = Progress(table.opened, table.started, finished)
            report = run_suite(open_target, self.options, progress)
        table.summary(report, self.run.path)
        outcome = background.outcome
        self.console.print(
            f"around   {outcome.exact} of {outcome.answers} answers of the load beside it exact"
        )
        for complaint in complaints(outcome):
            self.console.print(f"         {complaint}")
        return report.results, outcome


def opening_workload(oracle: ProbeOracle, seed: int) -> Workload:
    """Eight short requests of different lengths, all due at once."""
    prompts = OraclePrompts(oracle)
    requests = tuple(
        WorkloadRequest(
            f"opening-{number}",
            prompt_ids=prompts.prompt(seed, 1000 + number, prompt_tokens),
            params={"max_tokens": output_tokens, "temperature": 0, "ignore_eos": True},
        )
        for number, (prompt_tokens, output_tokens) in enumerate(_OPENING)
    )
    return Workload(requests, "demo opening", seed)


def one_thread() -> dict[str, str]:
    """The server's environment: one thread, unless the user said otherwise.

    A probe's matrices are small; more threads cost more in waiting for each other than they win.
    """
    return {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}


async def traced_steps(url: str) -> dict[str, Any]:
    """What ``/debug/steps`` of our own server tells: steps, token budget, page size."""
    import aiohttp

    async with aiohttp.ClientSession() as session, session.get(f"{url}/debug/steps") as answer:
        answer.raise_for_status()
        document: dict[str, Any] = await answer.json()
        return document


def complaints(load: JudgedLoad, limit: int = 5) -> Iterator[str]:
    """The first few answers that were wrong or never came, a line each."""
    lines = [
        f"{request.key} is wrong from token {judgement.first_difference} on"
        + (f": {judgement.guess}" if judgement.guess else "")
        for request, judgement in load.wrong
    ] + load.failed
    yield from lines[:limit]
    if len(lines) > limit:
        yield f"and {len(lines) - limit} more"


def measured_table(rows: list[MetricRow]) -> Table:
    """The headline numbers of a load."""
    table = Table(show_edge=False, pad_edge=False)
    for title in ("measured", "p50", "p90", "max"):
        table.add_column(title, justify="left" if title == "measured" else "right")
    window = "steady" if any(row["window"] == "steady" for row in rows) else "whole"
    shown = [row for row in rows if row["window"] == window]
    for metric_id in ("ttft.response", "tpot", "chunk_gap"):
        found = [row for row in shown if row["id"] == metric_id]
        cells = {row["statistic"]: quantity(row["value"], row["unit"]) for row in found}
        table.add_row(metric_id, *(cells.get(s, "") for s in ("p50", "p90", "max")))
    for row in shown:
        if row["id"].startswith("throughput."):
            table.add_row(row["id"], quantity(row["value"], row["unit"]))
    return table
