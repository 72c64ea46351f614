"""``isobatch selftest``: the tool's own error and cost, on a server whose send times are known."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from harness.cli.errors import UserError


def command(
    streams: Annotated[
        str, typer.Option(help="How many streams at once, several levels separated by commas.")
    ] = "1,32,128,256,512,1024",
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Requests a stream, one after another (2 to 8).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure this client against a built-in server that records when it sent each event.

    The server runs in a process of its own: first token after 50 ms, then one every 10 ms. Printed
    are the errors of TTFT and of gaps (median, p99, largest), the CPU time an event costs, and the
    highest event rate at which both errors stay under 1 ms at p99.
    """
    from rich.console import Console

    from harness.load.selftest import best_rate, run_selftest
    from harness.load.selftest_table import level_table

    try:
        levels = [int(part) for part in streams.split(",")]
    except ValueError:
        raise UserError(f"--streams {streams!r}: expected numbers such as 1,32,256") from None
    if min(levels) < 1:
        raise UserError("--streams: at least 1 stream is needed")
    done = run_selftest(levels, rounds=rounds)
    rate = best_rate(done)
    if as_json:
        document = {"levels": [x.to_json() for x in done], "best_events_per_s": rate}
        print(json.dumps(document, indent=1))
        return
    console = Console()
    console.print(level_table(done))
    if rate is None:
        console.print("no level kept both errors under 1 ms at p99: the machine is busy")
    else:
        console.print(f"both errors under 1 ms at p99 up to {rate:,.0f} events/s")
