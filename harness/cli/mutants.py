"""`isobatch mutants`: does the suite catch every known defect, and leave a healthy server alone?"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.errors import ExitStatus, UserError

if TYPE_CHECKING:
    from harness.mutants.campaign import Attempt, Campaign, MutantRow
    from reference_engine.faults import Fault


def command(
    faults: Annotated[
        str, typer.Option(help="Names of faults, separated by commas; default: all.")
    ] = "",
    only: Annotated[str, typer.Option(help="Chapters or check ids, separated by commas.")] = "",
    budget: Annotated[str, typer.Option(help="quick, standard or exhaustive.")] = "quick",
    healthy: Annotated[
        int, typer.Option(min=0, help="Runs of all checks against the healthy server.")
    ] = 1,
    whole: Annotated[
        bool,
        typer.Option("--whole", help="Run every check on every fault, not up to the first kill."),
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for matrix.json and matrix.html.")] = Path(
        "runs/mutants"
    ),
) -> None:
    """Run the suite over HTTP against our server with each fault in turn: the kill matrix.

    The status is 0 if every fault is killed and the healthy server fails nothing.
    """
    from harness.checks.budget import BUDGETS
    from harness.cli.check import ensure_writable, selected
    from harness.mutants.campaign import Campaign

    if budget not in BUDGETS:
        raise UserError(f"no budget {budget!r}: choose from {', '.join(BUDGETS)}")
    checks, chosen = selected(only), chosen_faults(faults)
    ensure_writable(out)
    with tempfile.TemporaryDirectory(prefix="isobatch-mutants-") as scratch:
        campaign = Campaign(checks, BUDGETS[budget], Path(scratch), whole=whole)
        rows, runs = _run(campaign, chosen, healthy, out)
    document = _write(campaign, rows, runs, out)
    print(
        f"{document['killed']} of {document['faults']} faults killed, "
        f"{len(document['false_alarms'])} false alarms in {len(runs)} healthy runs; "
        f"written to {out}"
    )
    if document["killed"] < document["faults"] or document["false_alarms"]:
        raise typer.Exit(ExitStatus.FAILED)


def chosen_faults(names: str) -> list[Fault]:
    """The faults named, in their own order. Raises UserError for one that there is not."""
    from reference_engine.faults import FAULTS

    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in FAULTS:
            raise UserError(f"no fault {name!r}: `isobatch list faults` shows them")
    return [FAULTS[name] for name in wanted] if wanted else list(FAULTS.values())


def _run(
    campaign: Campaign, faults: list[Fault], healthy: int, out: Path
) -> tuple[list[MutantRow], list[Attempt]]:
    """All faults, then the healthy runs; what is found is on disk after each."""
    from harness.mutants.settings import SETTINGS

    rows: list[MutantRow] = []
    runs: list[Attempt] = []
    for fault in faults:
        row = campaign.run(fault, lambda _line: None)
        rows.append(row)
        killers = [k.check_id for a in row.attempts for k in a.killers]
        verdict = "killed" if row.killed else "ERROR" if row.errors else "SURVIVED"
        print(
            f"{fault.name:<32} {verdict:<9} {', '.join(killers) or '; '.join(row.errors)}"
            f" ({row.requests_to_detection} requests)",
            flush=True,
        )
        _write(campaign, rows, runs, out)
    for number in range(healthy):
        setting = SETTINGS[number % len(SETTINGS)]
        runs.append(campaign.healthy(setting, number, lambda _line: None))
        alarms = [k.check_id for k in runs[-1].killers]
        print(f"healthy, {setting.name}, seed {number}: {alarms or 'nothing failed'}", flush=True)
        _write(campaign, rows, runs, out)
    return rows, runs


def _write(
    campaign: Campaign, rows: list[MutantRow], runs: list[Attempt], out: Path
) -> dict[str, Any]:
    from harness.mutants.matrix import matrix_document, matrix_page
    from harness.results.environment import tool

    document = matrix_document(
        rows, campaign.checks, runs, tool=tool(), budget=campaign.budget.name, seed=campaign.seed
    )
    (out / "matrix.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (out / "matrix.html").write_text(matrix_page(document), encoding="utf-8")
    return document
