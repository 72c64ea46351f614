"""`isobatch check URL`: runs the suite against a server, shows verdicts, writes a run folder."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.errors import ExitStatus, UserError

if TYPE_CHECKING:
    from harness.checks.registry import Check
    from harness.checks.suite import SuiteOptions

DEFAULT_OUT = Path("runs")


def command(
    url: Annotated[str, typer.Argument(help="Base URL of the server, such as http://host:8000.")],
    model: Annotated[
        str | None, typer.Option(help="Model id; needed if it serves several.")
    ] = None,
    probe: Annotated[
        str | None, typer.Option(help="The probe it serves: a variant's name or its folder.")
    ] = None,
    oracle: Annotated[str, typer.Option(help="auto or probe.")] = "auto",
    reference: Annotated[
        str | None, typer.Option(help="Folder of the served checkpoint, for --oracle reference.")
    ] = None,
    only: Annotated[
        str, typer.Option(help="Chapters or check ids, separated by commas: EQV,ISO-2.")
    ] = "",
    budget: Annotated[str, typer.Option(help="quick, standard or exhaustive.")] = "quick",
    seed: Annotated[
        str, typer.Option(help="A number, or `random`; the same seed draws the same requests.")
    ] = "0",
    out: Annotated[
        Path, typer.Option(help="Folder in which the run's own folder is made.")
    ] = DEFAULT_OUT,
    param: Annotated[
        list[str] | None,
        typer.Option(help="KEY=VALUE added to every request (VALUE as JSON); may be repeated."),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="'Name: value' sent with every request.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="OPENAI_API_KEY", help="Sent as a bearer token.")
    ] = None,
) -> None:
    """Check a server against the conformance suite.

    Needs any OpenAI-compatible server with /v1/completions. The strongest verdicts come from a
    server that serves a probe (`isobatch probe export DIR`).
    """
    from harness.checks.suite import run_suite
    from harness.cli.run_record import RunRecord
    from harness.cli.verdict_table import VerdictTable
    from harness.targets.http import HttpTarget

    headers, params = parsed_headers(header or []), parsed_params(param or [])
    options = suite_options(only, budget, seed, probe, oracle, reference, params)
    table = VerdictTable(options.checks)

    def open_target() -> HttpTarget:
        return HttpTarget(url, model=model, api_key=api_key, headers=headers, extra_params=params)

    ensure_writable(out)
    with ExitStack() as stack:
        # The folder is made once there is something to judge, so a wrong URL leaves none behind.
        record = RunRecord(stack, out, redacted(sys.argv), url, table)
        stack.enter_context(table)
        report = run_suite(open_target, options, record.progress())
    table.summary(report, record.folder.path)
    if report.failed:
        raise typer.Exit(ExitStatus.FAILED)


def suite_options(
    only: str,
    budget: str,
    seed: str,
    probe: str | None,
    oracle: str,
    reference: str | None,
    params: dict[str, Any],
) -> SuiteOptions:
    """The options as the suite takes them. Raises UserError for what cannot be read."""
    from harness.checks.budget import BUDGETS
    from harness.checks.suite import SuiteOptions
    from harness.oracles.choose import ORACLES, OracleChoice

    if budget not in BUDGETS:
        raise UserError(f"no budget {budget!r}: choose from {', '.join(BUDGETS)}")
    if oracle not in ORACLES:
        raise UserError(f"no oracle {oracle!r}: choose from {', '.join(ORACLES)}")
    return SuiteOptions(
        checks=selected(only),
        budget=BUDGETS[budget],
        seed=parsed_seed(seed),
        choice=OracleChoice(oracle, probe, reference),
        params=params,
    )


def selected(only: str) -> Sequence[Check]:
    """The checks that ``--only`` names. Raises UserError."""
    from harness.checks.registry import select

    try:
        return select(only.split(","))
    except ValueError as error:
        raise UserError(str(error)) from None


def parsed_seed(text: str) -> int:
    """A seed from the command line: a number, or one drawn now for ``random``."""
    if text == "random":
        return int.from_bytes(os.urandom(4), "big")
    try:
        return int(text)
    except ValueError:
        raise UserError(f"--seed is a number or `random`, not {text!r}") from None


def parsed_params(rows: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` rows; a value that is no JSON is a string. Raises UserError."""
    params: dict[str, Any] = {}
    for row in rows:
        name, equals, value = row.partition("=")
        if not equals or not name:
            raise UserError(f"--param is KEY=VALUE, not {row!r}")
        try:
            params[name] = json.loads(value)
        except json.JSONDecodeError:
            params[name] = value
    return params


def parsed_headers(rows: Sequence[str]) -> dict[str, str]:
    """``Name: value`` rows. Raises UserError."""
    headers: dict[str, str] = {}
    for row in rows:
        name, colon, value = row.partition(":")
        if not colon or not name.strip():
            raise UserError(f"--header is 'Name: value', not {row!r}")
        headers[name.strip()] = value.strip()
    return headers


def ensure_writable(folder: Path) -> None:
    """Raise UserError unless files can be made in ``folder``, which is made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".isobatch-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"cannot write to {folder}: {reason}; name another with --out") from None


def redacted(arguments: Sequence[str]) -> list[str]:
    """The command line without the values of secrets."""
    shown: list[str] = []
    hide = False
    for argument in arguments:
        if hide:
            shown.append("REDACTED")
            hide = False
            continue
        name, equals, _ = argument.partition("=")
        secret = name in ("--api-key", "--header")
        shown.append(f"{name}=REDACTED" if secret and equals else argument)
        hide = secret and not equals
    return shown
