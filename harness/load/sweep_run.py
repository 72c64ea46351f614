"""What ``isobatch sweep`` does: a bench a point, and the curve."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import uvloop

from harness.load.bench_load import RecipeLoad
from harness.load.bench_run import BenchPlan, model_of, prompts_for, target_of, wording_for
from harness.load.measurement import Measurement, measure
from harness.load.request_rows import RequestRows
from harness.load.sweep import Ladder, Point, knee, sweep
from harness.results.document import MetricRow
from harness.results.run_folder import RunFolder
from harness.targets.wording import Wording
from workloads.recipe import Recipe
from workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """The points, ascending by streams, and the folder they were written to."""

    folder: Path
    model: str
    points: list[Point]
    wording: Wording = field(default_factory=Wording)

    @property
    def knee(self) -> Point:
        """The point after which streams buy more waiting than throughput."""
        return knee(self.points)


def run_sweep(
    plan: BenchPlan,
    recipe: Recipe,
    ladder: Ladder,
    requests_per_stream: int,
    on_point: Callable[[Point], None],
) -> SweepOutcome:
    """Measure point after point; each has its own prompts, so none warms another's cache."""
    model = uvloop.run(model_of(plan))
    prompts = prompts_for(model, plan.prompts)
    like = RecipeLoad(recipe).warmup(prompts, plan.seed)
    wording = uvloop.run(wording_for(plan, model, like))
    with RunFolder.create(plan.out, kind="sweep", command=sys.argv, rows=plan.rows) as folder:
        folder.set_server(url=plan.url, model=model, wording=wording.to_json())

        def point(streams: int) -> Point:
            closed = replace(
                recipe, concurrency=streams, requests=max(8, streams * requests_per_stream)
            )
            load = RecipeLoad(closed)
            workload = load.workload(prompts, plan.seed + streams)
            folder.add_workload(workload, name=f"{recipe.name}-{streams}")
            warmup = load.warmup(prompts, plan.seed + streams) if plan.warmup else None
            rows = RequestRows(folder, f"requests-{streams}")
            measured = uvloop.run(_measure(plan, model, wording, workload, warmup, rows))
            rows.check()
            found = _point(streams, measured.metrics(workload), measured)
            folder.add_metrics(measured.metrics(workload))
            on_point(found)
            if measured.interrupted:
                raise KeyboardInterrupt
            return found

        points = sweep(point, ladder)
        document = {"knee": knee(points).streams, "points": [asdict(p) for p in points]}
        folder.write_file("sweep.json", json.dumps(document, indent=1).encode())
        folder.write_file("sweep.svg", _svg(points).encode())
    return SweepOutcome(folder.path, model, points, wording)


async def _measure(
    plan: BenchPlan,
    model: str,
    wording: Wording,
    workload: Workload,
    warmup: Workload | None,
    rows: RequestRows,
) -> Measurement:
    target = target_of(plan, model, wording)
    try:
        return await measure(target, workload, warmup=warmup, on_settled=rows.add)
    finally:
        await target.close()


def _point(streams: int, rows: list[MetricRow], measured: Measurement) -> Point:
    found = {(r["id"], r["statistic"], r["window"]): r["value"] for r in rows}

    def first(metric: str, statistic: str) -> float | None:
        for window in ("steady", "whole"):
            value = found.get((metric, statistic, window))
            if value is not None:
                return float(value)
        return None

    return Point(
        streams,
        first("throughput.output", "value") or 0.0,
        first("ttft.response", "p50"),
        first("ttft.response", "p99"),
        first("tpot", "p50"),
        int(found.get(("requests.failed", "value", None)) or 0),
    )


def _svg(points: list[Point]) -> str:
    from harness.report.sweep_figure import sweep_figure
    from harness.report.theme import standalone_svg

    return standalone_svg(sweep_figure(points), "sweep")
