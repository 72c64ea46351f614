"""`isobatch trend`: when did a metric change, over all stored runs of a folder?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.errors import ExitStatus, UserError


def command(
    results: Annotated[Path, typer.Argument(help="A folder of run folders.", show_default=False)],
    metric: Annotated[
        list[str] | None,
        typer.Option(help="ID[:STATISTIC]=DELTA%, as in tpot:p50=5%; may be repeated."),
    ] = None,
) -> None:
    """Find the runs with which a metric's level changed, series by series.

    A series is one server, model, workload and client machine; it needs eight runs. Exit status 1
    when the latest change of any series is for the worse.
    """
    from harness.cli.gate import parsed_metrics
    from harness.cli.gate_table import percent
    from harness.console import plain_console
    from harness.gate.trend import MIN_RUNS, changes, series
    from harness.leaderboard.standings import read_standings

    metrics = parsed_metrics(metric or [])
    try:
        documents = [run.document for run in read_standings(results).runs]
    except OSError as error:
        raise UserError(str(error)) from None
    console = plain_console()
    long_enough, worse = 0, False
    for guarded in metrics:
        for key, points in series(documents, guarded).items():
            if len(points) < MIN_RUNS:
                continue
            long_enough += 1
            found = changes(points, guarded)
            name = f"{key.server} {key.model} {guarded.name}: {len(points)} runs"
            console.print(f"{name}, {len(found)} changes")
            for change in found:
                where = f"{change.first.started_at} {change.first.run_id} {change.first.version}"
                console.print(f"  {percent(change.slowdown)} from {where}")
            worse = worse or bool(found and found[-1].slowdown > 0)
    if not long_enough:
        raise UserError(f"no series in {results} has {MIN_RUNS} runs; a trend needs that many")
    if worse:
        raise typer.Exit(ExitStatus.FAILED)
