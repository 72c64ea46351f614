"""``isobatch bench``: TTFT, gaps and throughput of a server under a stated load."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.errors import ExitStatus, UserError
from harness.load.bench_load import Load, RecipeLoad, TraceLoad
from harness.load.bench_run import BenchInterrupted, BenchOutcome, BenchPlan, bench
from harness.load.worker_run import WorkerPlan
from harness.metrics.slo import Slo
from workloads.presets import load_preset
from workloads.recipe import Recipe
from workloads.trace_files import read_trace


def command(
    url: Annotated[str, typer.Argument(help="Base URL of the server, e.g. http://127.0.0.1:8000")],
    preset: Annotated[
        str, typer.Option(help="A preset (isobatch list presets) or the path of a .toml recipe.")
    ] = "ragged",
    trace: Annotated[
        Path | None, typer.Option(help="Replay a trace file instead (isobatch trace --help).")
    ] = None,
    time_scale: Annotated[float, typer.Option(help="Trace: stretch time; 2 halves the rate.")] = 1,
    length_scale: Annotated[float, typer.Option(help="Trace: scale all lengths.")] = 1,
    requests: Annotated[int | None, typer.Option(min=1, help="How many requests to send.")] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Closed loop: this many in flight.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=1e-6, help="Open loop: Poisson arrivals, requests a second.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of lengths, contents and arrivals.")] = 0,
    model: Annotated[str | None, typer.Option(help="Model id, if the server has several.")] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="ISOBATCH_API_KEY", help="Sent as a bearer token.")
    ] = None,
    prompts: Annotated[
        str, typer.Option(help="auto, text, or token ids to draw from, as FIRST:LAST.")
    ] = "auto",
    slo: Annotated[
        list[str] | None, typer.Option(help="Objective for goodput, e.g. ttft.response=0.5")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="Request field NAME=JSON, sent with every request.")
    ] = None,
    warmup: Annotated[bool, typer.Option(help="Warm up first, with other prompts.")] = True,
    workers: Annotated[
        str, typer.Option(help="Processes to send from: N, or ray:N, or ray:N@ADDRESS.")
    ] = "1",
    calibrate: Annotated[
        bool, typer.Option(help="Measure the client's own error afterwards (two seconds).")
    ] = True,
    out: Annotated[Path, typer.Option(help="Where run folders go.")] = Path("runs"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the metrics as JSON instead of a table.")
    ] = False,
) -> None:
    """Measure TTFT, gaps and throughput of any OpenAI-compatible server.

    Times are stamped as each socket read happens, requests are sent when the schedule says,
    failures are kept by class, and a run in which the client itself was too slow is marked invalid.
    Exit status: 0 all requests ended well, 1 some failed or the run is invalid, 2 nothing measured.
    """
    try:
        load: Load = RecipeLoad(_recipe(preset, requests, concurrency, rate))
        if trace is not None:
            scaled = read_trace(trace, requests).scaled(time=time_scale, length=length_scale)
            load = TraceLoad(scaled, trace)
        objectives = tuple(Slo.parse(text) for text in slo or ())
        worker_plan = WorkerPlan.parse(workers)
        extra = dict(_parameter(text) for text in param or ())
    except ValueError as error:
        raise UserError(str(error)) from None
    plan = BenchPlan(
        url=url,
        load=load,
        seed=seed,
        model=model,
        api_key=api_key,
        prompts=prompts,
        objectives=objectives,
        extra_params=extra,
        warmup=warmup,
        workers=worker_plan,
        calibrate=calibrate,
        out=out,
    )
    try:
        outcome = bench(plan, quiet=as_json)
    except BenchInterrupted as stopped:
        _show(stopped.outcome, as_json)
        raise
    _show(outcome, as_json)
    if outcome.complete == 0:
        raise UserError(f"no request succeeded: {outcome.first_error}")
    if not outcome.health.valid or outcome.failed:
        sys.exit(ExitStatus.FAILED)


def _show(outcome: BenchOutcome, as_json: bool) -> None:
    from harness.load.bench_table import print_outcome

    if as_json:
        print(json.dumps(outcome.to_json(), indent=1))
    else:
        print_outcome(outcome)


def _recipe(
    preset: str, requests: int | None, concurrency: int | None, rate: float | None
) -> Recipe:
    from workloads.arrivals import Poisson

    if rate is not None and concurrency is not None:
        raise ValueError("--rate opens the loop and --concurrency closes it: choose one")
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
