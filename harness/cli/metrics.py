"""``isobatch metrics``: all metrics of a run, computed again from its raw rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.errors import UserError


def command(
    path: Annotated[Path, typer.Argument(help="A run folder, or its requests.jsonl(.zst) file.")],
    slo: Annotated[
        list[str] | None, typer.Option(help="Objective for goodput, e.g. ttft.response=0.5")
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(help="Draw TTFT, gaps and throughput into this folder.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Compute every metric again from the raw rows of a run.

    The numbers are those that the run itself reported; with --slo, goodput under other objectives.
    """
    from harness.console import plain_console
    from harness.metrics.metric_table import print_metrics
    from harness.metrics.row_files import read_requests
    from harness.metrics.slo import Slo
    from harness.metrics.summary import metric_rows

    try:
        objectives = tuple(Slo.parse(text) for text in slo or ())
        requests = read_requests(path)
        rows = metric_rows(requests, objectives=objectives)
    except ValueError as error:
        raise UserError(str(error)) from None
    if plots is not None:
        from harness.metrics.plots import draw_all

        try:
            drawn = draw_all(requests, plots)
        except OSError as error:
            raise UserError(f"{plots} cannot be written: {error.strerror}") from None
        if not as_json:
            print("\n".join(map(str, drawn)))
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        print_metrics(plain_console(highlight=True), rows, str(path))
