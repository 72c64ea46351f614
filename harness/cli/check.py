"""`isobatch check URL`: runs the suite against a server, shows verdicts, writes a run folder."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from harness.cli import check_options as given
from harness.cli.errors import ExitStatus, UserError
from harness.cli.server_under_test import ServerUnderTest

if TYPE_CHECKING:
    from harness.checks.registry import Check
    from harness.checks.suite import SuiteOptions, SuiteReport
    from harness.oracles.choose import OracleChoice
    from harness.targets.http import HttpTarget

DEFAULT_OUT = Path("runs")


def command(
    url: given.Url = None,
    launch: given.Launch = None,
    variant: given.Variant = None,
    device: given.Device = None,
    model: given.Model = None,
    probe: given.Probe = None,
    oracle: given.Oracle = "auto",
    reference: given.Reference = None,
    only: given.Only = "",
    budget: given.Budget = "quick",
    seed: given.Seed = "0",
    out: given.Out = DEFAULT_OUT,
    param: given.Param = None,
    header: given.Header = None,
    api_key: given.ApiKey = None,
) -> None:
    """Check a server against the conformance suite.

    Needs any OpenAI-compatible server with /v1/completions. The strongest verdicts come from a
    server that serves a probe (`isobatch probe export DIR`).
    """
    ensure_writable(out)
    headers, params = parsed_headers(header or []), parsed_params(param or [])
    with ExitStack() as stack:
        if launch is None:
            server = ServerUnderTest.given(url, model)
        else:
            server = ServerUnderTest.launched(stack, launch, variant, device, url, model)
        choice = chosen_oracle(oracle, probe or server.probe, reference or server.reference)
        options = suite_options(only, budget, seed, choice, params)

        def open_target() -> HttpTarget:
            return server.target(api_key, headers, params)

        report = run_and_record(server, options, open_target, out, api_key)
    if report.failed:
        raise typer.Exit(ExitStatus.FAILED)
    if report.judged_nothing:
        raise typer.Exit(ExitStatus.UNUSABLE)


def run_and_record(
    server: ServerUnderTest,
    options: SuiteOptions,
    open_target: Callable[[], HttpTarget],
    out: Path,
    api_key: str | None,
) -> SuiteReport:
    """Run the suite, show it, and write its run folder in ``out``."""
    from harness.checks.suite import run_suite
    from harness.cli.run_record import RunRecord
    from harness.cli.verdict_table import VerdictTable

    table = VerdictTable(options.checks)
    with ExitStack() as recording:
        # The folder is made once there is something to judge, so a wrong URL leaves none behind.
        record = RunRecord(
            recording, out, redacted(sys.argv), server.url, table, server.facts, api_key
        )
        recording.enter_context(table)
        report = run_suite(open_target, options, record.progress())
    table.summary(report, record.folder.path)
    return report


def suite_options(
    only: str, budget: str, seed: str, choice: OracleChoice, params: dict[str, Any]
) -> SuiteOptions:
    """The options as the suite takes them. Raises UserError for what cannot be read."""
    from harness.checks.budget import BUDGETS
    from harness.checks.suite import SuiteOptions

    if budget not in BUDGETS:
        raise UserError(f"no budget {budget!r}: choose from {', '.join(BUDGETS)}")
    return SuiteOptions(
        checks=selected(only),
        budget=BUDGETS[budget],
        seed=parsed_seed(seed),
        choice=choice,
        params=params,
    )


def chosen_oracle(oracle: str, probe: str | None, reference: str | None) -> OracleChoice:
    """The oracle that the options name. Raises UserError for one that there is not."""
    from harness.oracles.choose import ORACLES, OracleChoice

    if oracle not in ORACLES:
        raise UserError(f"no oracle {oracle!r}: choose from {', '.join(ORACLES)}")
    return OracleChoice(oracle, probe, reference)


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
