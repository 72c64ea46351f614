"""``isobatch sweep``: throughput and latency from one stream to saturation, and the knee."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from harness.cli import bench_options as option
from harness.cli.errors import UserError
from harness.load.sweep import Ladder, Point


def command(
    url: option.GivenUrl,
    preset: option.Preset = "ragged",
    most_streams: Annotated[
        int, option.option(option.LOAD, "N", "Go no higher than this.", min=1)
    ] = 256,
    most_points: Annotated[
        int, option.option(option.LOAD, "N", "Measure no more points.", min=1)
    ] = 12,
    requests_per_stream: Annotated[
        int, option.option(option.LOAD, "N", "Requests each stream sends in turn.", min=1)
    ] = 3,
    seed: option.Seed = 0,
    model: option.Model = None,
    api_key: option.ApiKey = None,
    prompts: option.PromptKind = "auto",
    warmup: option.Warmup = True,
    out: option.Out = Path("runs"),
    rows: option.Rows = "plain",
    as_json: option.Json = False,
) -> None:
    """Find where more streams stop helping: concurrency doubles until throughput stops growing.

    The knee is the point after which streams buy more waiting than throughput. The run folder has
    the raw rows of every point, sweep.json and the curve as sweep.svg.
    """
    from harness.load.bench_load import RecipeLoad
    from harness.load.bench_run import BenchPlan
    from harness.load.sweep_run import run_sweep
    from workloads.presets import load_preset

    try:
        recipe = load_preset(preset)
    except ValueError as error:
        raise UserError(str(error)) from None
    load = RecipeLoad(recipe)
    plan = BenchPlan(url, load, seed, model, api_key, prompts, warmup=warmup, out=out, rows=rows)

    def show(point: Point) -> None:
        if not as_json:
            print(_line(point), flush=True)

    outcome = run_sweep(plan, recipe, Ladder(most_streams, most_points), requests_per_stream, show)
    if as_json:
        points = [asdict(p) for p in outcome.points]
        print(json.dumps({"knee": outcome.knee.streams, "points": points}, indent=1))
        return
    print(*outcome.wording.sentences(), f"knee: {outcome.knee.streams} streams", sep="\n")
    print(f"run folder: {outcome.folder}")


def _line(point: Point) -> str:
    ttft = "-" if point.ttft_p50_s is None else f"{point.ttft_p50_s * 1e3:.1f} ms"
    failed = f", {point.failed} failed" if point.failed else ""
    return (
        f"{point.streams:5} streams  {point.output_tokens_per_s:9.1f} tokens/s  "
        f"{point.tokens_per_s_per_stream:8.1f} a stream  TTFT p50 {ttft}{failed}"
    )
