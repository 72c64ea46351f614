"""``isobatch selftest``: the tool's own error and cost, on a server whose send times are known."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.errors import ExitStatus, UserError

if TYPE_CHECKING:
    from harness.load.scenarios import ScenarioResult
    from harness.load.selftest import Level


def command(
    streams: Annotated[
        str, typer.Option(help="How many streams at once, several levels separated by commas.")
    ] = "1,32,128,256,512,1024",
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Requests a stream, one after another (2 to 8).")
    ] = None,
    scenarios: Annotated[
        bool, typer.Option(help="Also bursts, stalls, errors, half-open and reset streams.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure this client against a built-in server that records when it sent each event.

    The server runs in a process of its own: first token after 50 ms, then one every 10 ms. Printed
    are the errors of TTFT and of gaps (median, p99, largest), the CPU time an event costs, and the
    highest event rate at which both errors stay under 1 ms at p99. Then what servers do to
    clients, each to be reported as it was. Exit status 1 if one was not.
    """
    import uvloop

    from harness.load.scenarios import run_scenarios
    from harness.load.selftest import run_selftest

    levels = run_selftest(_levels(streams), rounds=rounds)
    judged = uvloop.run(run_scenarios()) if scenarios else []
    if as_json:
        _print_json(levels, judged)
    else:
        _print_table(levels, judged)
    if any(result.problem for result in judged):
        sys.exit(ExitStatus.FAILED)


def _levels(text: str) -> list[int]:
    try:
        levels = [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--streams {text!r}: expected numbers such as 1,32,256") from None
    if min(levels) < 1:
        raise UserError("--streams: at least 1 stream is needed")
    return levels


def _print_json(levels: list[Level], judged: list[ScenarioResult]) -> None:
    from harness.load.selftest import best_rate

    document = {
        "levels": [level.to_json() for level in levels],
        "best_events_per_s": best_rate(levels),
        "scenarios": [asdict(result) for result in judged],
    }
    print(json.dumps(document, indent=1))


def _print_table(levels: list[Level], judged: list[ScenarioResult]) -> None:
    from harness.console import plain_console
    from harness.load.selftest import best_rate
    from harness.load.selftest_table import level_table

    console = plain_console(highlight=True)
    console.print(level_table(levels))
    rate = best_rate(levels)
    if rate is None:
        console.print("no level kept both errors under 1 ms at p99: the machine is busy")
    else:
        console.print(f"both errors under 1 ms at p99 up to {rate:,.0f} events/s")
    for result in judged:
        console.print(f"{result.name:22} {result.problem or 'reported as it was'}", highlight=False)
