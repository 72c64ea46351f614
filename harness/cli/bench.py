"""``isobatch bench``: TTFT, gaps and throughput of a server under a stated load."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.cli import bench_options as option
from harness.cli.errors import ExitStatus, UserError
from harness.cli.server_under_test import ServerUnderTest
from harness.load.bench_load import Load, RecipeLoad, TraceLoad
from harness.load.bench_run import (
    BenchInterrupted,
    BenchNotWritten,
    BenchOutcome,
    BenchPlan,
    bench,
)
from harness.load.worker_run import WorkerPlan
from harness.metrics.slo import Slo
from workloads.arrivals import Poisson
from workloads.presets import load_preset
from workloads.recipe import Recipe
from workloads.trace_files import read_trace


def command(
    url: option.Url = None,
    launch: option.Launch = None,
    variant: option.Variant = None,
    device: option.Device = None,
    preset: option.Preset = "ragged",
    trace: option.TraceFile = None,
    time_scale: option.TimeScale = 1,
    length_scale: option.LengthScale = 1,
    requests: option.Requests = None,
    concurrency: option.Concurrency = None,
    rate: option.Rate = None,
    seed: option.Seed = 0,
    model: option.Model = None,
    api_key: option.ApiKey = None,
    prompts: option.PromptKind = "auto",
    slo: option.Slos = None,
    param: option.Params = None,
    warmup: option.Warmup = True,
    workers: option.Workers = "1",
    calibrate: option.Calibrate = True,
    tokenizer: option.Tokenizer = None,
    page: option.Page = True,
    out: option.Out = Path("runs"),
    rows: option.Rows = "plain",
    as_json: option.Json = False,
) -> None:
    """Measure TTFT, gaps and throughput of any OpenAI-compatible server.

    Times are the kernel's arrival times, requests are sent when the schedule says, failures are
    kept by class, and a run in which the client itself was too slow is marked invalid.

    Exit status: 0 all requests ended well, 1 some failed or the run is invalid, 2 nothing measured.
    """
    try:
        load: Load = RecipeLoad(_recipe(preset, requests, concurrency, rate))
        load = _or_trace(load, trace, requests, time_scale, length_scale)
        plan = BenchPlan(url or "", load, seed, model, api_key, prompts, warmup=warmup, out=out)
        plan = replace(plan, calibrate=calibrate, page=page, tokenizer=tokenizer, rows=rows)
        plan = replace(
            plan,
            objectives=tuple(Slo.parse(text) for text in slo or ()),
            extra_params=dict(_parameter(text) for text in param or ()),
            workers=WorkerPlan.parse(workers),
        )
    except ValueError as error:
        raise UserError(str(error)) from None
    with ExitStack() as stack:
        server = _server(stack, url, launch, variant, device, model)
        _run(replace(plan, url=server.url, model=server.model, facts=server.facts), as_json)


def _server(
    stack: ExitStack,
    url: str | None,
    launch: str | None,
    variant: str | None,
    device: str | None,
    model: str | None,
) -> ServerUnderTest:
    """The server to measure, started now if a recipe is named. Raises UserError."""
    if launch is None:
        return ServerUnderTest.given(url, model)
    with redirect_stdout(sys.stderr):  # --json has standard output for itself
        return ServerUnderTest.launched(stack, launch, variant, device, url, model)


def _run(plan: BenchPlan, as_json: bool) -> None:
    try:
        outcome = bench(plan, quiet=as_json)
    except (BenchInterrupted, BenchNotWritten) as stopped:
        _show(stopped.outcome, as_json)
        raise
    _show(outcome, as_json)
    if outcome.complete == 0:
        raise UserError(outcome.nothing)
    if not outcome.health.valid or outcome.failed:
        sys.exit(ExitStatus.FAILED)


def _show(outcome: BenchOutcome, as_json: bool) -> None:
    from harness.load.bench_table import print_outcome

    if as_json:
        print(json.dumps(outcome.to_json(), indent=1))
    else:
        print_outcome(outcome)


def _or_trace(
    load: Load, file: Path | None, requests: int | None, time_scale: float, length_scale: float
) -> Load:
    """The trace in ``file`` if one is named, else ``load``."""
    if file is None:
        return load
    return TraceLoad(read_trace(file, requests).scaled(time=time_scale, length=length_scale), file)


def _recipe(
    preset: str, requests: int | None, concurrency: int | None, rate: float | None
) -> Recipe:
    if rate is not None and concurrency is not None:
        raise ValueError("--rate opens the loop and --concurrency closes it: choose one")
    if rate is not None and not rate > 0:
        raise ValueError(f"--rate {rate:g}: more than 0 requests a second are needed")
    recipe = load_preset(preset).resized(requests=requests, concurrency=concurrency)
    return recipe if rate is None else replace(recipe, arrivals=Poisson(rate), concurrency=None)


def _parameter(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise ValueError(f"parameter {text!r}: expected NAME=VALUE")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
