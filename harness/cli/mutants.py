"""`isobatch mutants`: does the suite catch every known defect, and leave a healthy server alone?"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.errors import ExitStatus, UserError

if TYPE_CHECKING:
    from harness.mutants.campaign import Campaign
    from harness.mutants.record import MatrixRecord
    from reference_engine.faults import Fault


Faults = Annotated[
    str, typer.Option(help="Names of faults, separated by commas, or `none`; default: all.")
]
Only = Annotated[str, typer.Option(help="Chapters or check ids, separated by commas.")]
BudgetName = Annotated[
    str, typer.Option(help="quick, standard or exhaustive; the smaller ones are tried first.")
]
Healthy = Annotated[int, typer.Option(min=0, help="Runs of all checks against the healthy server.")]
Seed = Annotated[int, typer.Option(help="Seed of the first healthy run and of the faults.")]
Whole = Annotated[
    bool, typer.Option("--whole", help="Run every check on every fault, not up to the first kill.")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Skip what --out already holds: kills, healthy runs.")
]
FaultSeconds = Annotated[float, typer.Option(min=1, help="Most seconds for one fault.")]
LimitSeconds = Annotated[
    float, typer.Option(min=1, help="Begin nothing new after so many seconds.")
]
Out = Annotated[Path, typer.Option(help="Folder for matrix.json and matrix.html.")]


def command(
    faults: Faults = "",
    only: Only = "",
    budget: BudgetName = "standard",
    healthy: Healthy = 1,
    seed: Seed = 0,
    whole: Whole = False,
    resume: Resume = False,
    fault_s: FaultSeconds = 600.0,
    limit_s: LimitSeconds = 86400.0,
    out: Out = Path("runs/mutants"),
) -> None:
    """Run the suite over HTTP against our server with each fault in turn: the kill matrix.

    The status is 0 if every fault is killed and the healthy server fails nothing. Several such
    commands may add to one --out at a time.
    """
    from harness.checks.budget import BUDGETS
    from harness.cli.check import ensure_writable, selected
    from harness.mutants.campaign import Campaign
    from harness.mutants.record import MatrixRecord
    from reference_engine.faults import FAULTS

    if budget not in BUDGETS:
        raise UserError(f"no budget {budget!r}: choose from {', '.join(BUDGETS)}")
    checks, chosen = selected(only), chosen_faults(faults)
    ensure_writable(out)
    names = list(BUDGETS)
    budgets = [BUDGETS[name] for name in names[: names.index(budget) + 1]]
    record = MatrixRecord(out, selected(""), list(FAULTS))
    _ensure_readable(record)
    ends_s = time.monotonic() + limit_s
    with tempfile.TemporaryDirectory(prefix="isobatch-mutants-") as scratch:
        campaign = Campaign(checks, budgets, Path(scratch), seed, whole, fault_s)
        _run_faults(campaign, chosen, record, resume, ends_s)
        _run_healthy(campaign, healthy, record, resume, ends_s)
    document = record.document()
    print(
        f"{document['killed']} of {document['faults']} faults killed, "
        f"{len(document['false_alarms'])} false alarms in {len(document['healthy'])} healthy runs; "
        f"written to {out}"
    )
    if document["killed"] < document["faults"] or document["false_alarms"]:
        raise typer.Exit(ExitStatus.FAILED)


def _ensure_readable(record: MatrixRecord) -> None:
    """Raise UserError where --out holds another kind of matrix."""
    try:
        record.runs()
    except ValueError as error:
        raise UserError(str(error)) from None


def chosen_faults(names: str) -> list[Fault]:
    """The faults named, in their own order. Raises UserError for one that there is not."""
    from reference_engine.faults import FAULTS

    if names.strip() == "none":
        return []
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in FAULTS:
            raise UserError(f"no fault {name!r}: `isobatch list faults` shows them")
    return [FAULTS[name] for name in wanted] if wanted else list(FAULTS.values())


def _run_faults(
    campaign: Campaign, faults: list[Fault], record: MatrixRecord, resume: bool, ends_s: float
) -> None:
    """Each fault in turn; what is found is on disk after each."""
    for fault in faults:
        if time.monotonic() > ends_s or (resume and fault.name in record.killed()):
            continue
        row = campaign.run(fault, lambda _line: None)
        record.add_row(row.to_json())
        killers = [k.check_id for a in row.attempts for k in a.killers]
        verdict = "killed" if row.killed else "ERROR" if row.errors else "SURVIVED"
        print(
            f"{fault.name:<32} {verdict:<9} {', '.join(killers) or '; '.join(row.errors)}"
            f" ({row.requests_to_detection} requests,"
            f" {sum(a.duration_s for a in row.attempts):.0f} s)",
            flush=True,
        )


def _run_healthy(
    campaign: Campaign, runs: int, record: MatrixRecord, resume: bool, ends_s: float
) -> None:
    """Runs of all checks with one seed after another, on the default server and the small pool."""
    from harness.mutants.settings import HEALTHY

    budget = campaign.budgets[-1]
    for number in range(campaign.seed, campaign.seed + runs):
        setting = HEALTHY[number % len(HEALTHY)]
        done = (setting.name, budget.name, number)
        if time.monotonic() > ends_s or (resume and done in record.runs()):
            continue
        attempt = campaign.healthy(setting, budget, number, lambda _line: None)
        record.add_healthy(attempt.healthy_json())
        alarms = [k.check_id for k in attempt.failures]
        print(f"healthy, {setting.name}, seed {number}: {alarms or 'nothing failed'}", flush=True)
