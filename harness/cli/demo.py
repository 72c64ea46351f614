"""`isobatch demo`: the main job end to end on this machine, from a probe to a report.

A probe is built, our server started on it as a process of its own, loaded with a ragged load that
is measured and judged token by token, checked while another ragged load goes on, and stopped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.errors import ExitStatus, UserError

if TYPE_CHECKING:
    from rich.console import Console

    from reference_engine.probe import ProbeConfig

DEFAULT_OUT = Path("runs")
DEFAULT_CHECKS = "EQV,ISO,LEN,STR"


def command(
    out: Annotated[
        Path, typer.Option(help="Folder in which the run's own folder is made.")
    ] = DEFAULT_OUT,
    variant: Annotated[str, typer.Option(help="Which probe to build and serve.")] = "eos",
    seed: Annotated[int, typer.Option(help="The same seed draws the same requests.")] = 0,
    only: Annotated[
        str, typer.Option(help="Chapters or check ids, separated by commas.")
    ] = DEFAULT_CHECKS,
    fault: Annotated[
        str | None, typer.Option(help="Serve with this fault switched on, and see it caught.")
    ] = None,
) -> None:
    """Run the whole suite on our own server: build a probe, serve, load, check, report.

    The status is 0 only if every check passed and every token of the load was right.
    """
    from harness.cli.check import ensure_writable, redacted, suite_options
    from harness.cli.demo_run import DemoRun
    from harness.console import plain_console
    from harness.oracles.choose import OracleChoice
    from harness.report.page import write_run_page
    from harness.results.run_folder import RunFolder

    console = plain_console()
    config = named_variant(variant)
    options = suite_options(only, "quick", str(seed), OracleChoice("probe", variant), {})
    ensure_known_fault(fault)
    ensure_writable(out)
    command_line = ["isobatch", *redacted(sys.argv[1:])]
    with (
        RunFolder.create(out, kind="demo", command=command_line) as run,
        TemporaryDirectory(prefix="isobatch-") as scratch,
    ):
        model_dir = build_probe(config, Path(scratch) / "probe", console)
        passed = DemoRun(run, config, model_dir, options, console, fault).passes()
    page = write_run_page(run.path)
    console.print(f"report   {page}")
    if not passed:
        raise typer.Exit(ExitStatus.FAILED)


def named_variant(name: str) -> ProbeConfig:
    """The probe variant of that name. Raises UserError."""
    from reference_engine.probe import VARIANTS

    if name not in VARIANTS:
        raise UserError(f"no probe variant {name!r}: choose from {', '.join(VARIANTS)}")
    return VARIANTS[name]


def ensure_known_fault(name: str | None) -> None:
    """Raise UserError unless ``name`` is None or a fault of our engine."""
    from reference_engine.faults import FAULTS

    if name is not None and name not in FAULTS:
        raise UserError(f"no fault {name!r}: choose from {', '.join(FAULTS)}")


def build_probe(config: ProbeConfig, directory: Path, console: Console) -> Path:
    """Export the checkpoint in fp32 and say how big it is."""
    from reference_engine.probe import export_probe

    folder = export_probe(config, directory)
    size_mb = sum(f.stat().st_size for f in folder.iterdir()) / 1e6
    console.print(f"probe    {config.name}, {size_mb:.0f} MB of weights compiled")
    return folder
