"""`isobatch replay FILE`: runs a failure, or any workload, again: does it still fail?"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.check import chosen_oracle
from harness.cli.errors import ExitStatus, UserError

if TYPE_CHECKING:
    from harness.checks.session import Session
    from harness.oracles.choose import OracleChoice
    from workloads.workload import Workload


def command(
    file: Annotated[Path, typer.Argument(help="A file of a run's failures/, or any workload.")],
    url: Annotated[
        str | None, typer.Option(help="The server; default: that of the run the file belongs to.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model id.")] = None,
    probe: Annotated[
        str | None, typer.Option(help="The probe it serves: a variant's name or its folder.")
    ] = None,
    oracle: Annotated[str, typer.Option(help="auto, probe, reference or self.")] = "auto",
    reference: Annotated[
        str | None, typer.Option(help="Folder of the checkpoint that it serves.")
    ] = None,
    times: Annotated[int, typer.Option(min=1, help="How many times to try.")] = 3,
    curl: Annotated[bool, typer.Option("--curl", help="Print curl lines and stop.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a bug report and stop.")
    ] = False,
    api_key: Annotated[
        str | None, typer.Option(envvar="ISOBATCH_API_KEY", help="Sent as a bearer token.")
    ] = None,
) -> None:
    """Run a failing workload again, or print it as curl lines or as a bug report.

    The status is 1 if it fails, 0 if it does not.
    """
    document, server = read_document(file), server_of_run(file)
    url, model = url or server.get("url"), model or server.get("model")
    if markdown or curl:
        print(_printed(document, {**server, "url": url, "model": model}, curl), end="")
        return
    if url is None:
        raise UserError("name the server with --url: the file is not in a run's folder")
    choice = chosen_oracle(oracle, probe, reference)
    failed = _replayed(document, url, model, choice, times, api_key)
    print(f"failed {failed} of {times} times")
    if failed:
        raise typer.Exit(ExitStatus.FAILED)


def read_document(file: Path) -> dict[str, Any]:
    """The JSON object in ``file``. Raises UserError when it is none that can be replayed."""
    from workloads.workload import Workload

    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        Workload.from_json(document)
    except OSError as error:
        raise UserError(f"cannot read {file}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise UserError(f"{file} is no workload that can be replayed: {error}") from None
    return dict(document)


def server_of_run(file: Path) -> dict[str, Any]:
    """What the result document of the run that ``file`` lies in says of its server, if any."""
    result = file.resolve().parent.parent / "result.json"
    try:
        server = json.loads(result.read_text(encoding="utf-8"))["server"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return dict(server) if isinstance(server, dict) else {}


def _printed(document: dict[str, Any], server: dict[str, Any], curl: bool) -> str:
    from harness.bug_report import curl_lines
    from harness.bug_report import markdown as report
    from workloads.workload import Workload

    try:
        if not curl:
            return report(document, server)
    except ValueError as error:
        raise UserError(str(error)) from None
    url, model = server.get("url") or "http://127.0.0.1:8000", server.get("model") or "MODEL"
    failure = document.get("failure") or {}
    workloads = [Workload.from_json(w) for w in (*failure.get("earlier", ()), document)]
    return "".join(curl_lines(workload, url, model) for workload in workloads)


def _replayed(
    document: dict[str, Any],
    url: str,
    model: str | None,
    choice: OracleChoice,
    times: int,
    api_key: str | None,
) -> int:
    """Run it ``times`` times and print each outcome; how many failed."""
    from harness.checks.suite import SuiteOptions, open_session
    from harness.cli.server_under_test import LONGEST_REQUEST_S
    from harness.client.limits import Limits
    from harness.targets.http import HttpTarget

    failed = 0
    with asyncio.Runner() as loop:

        async def opened() -> Session:
            limits = Limits(total_s=LONGEST_REQUEST_S)
            target = HttpTarget(url, model=model, api_key=api_key, limits=limits)
            return await open_session(target, SuiteOptions((), choice=choice))

        session = loop.run(opened())
        recorded = document.get("failure")
        if not isinstance(recorded, dict):
            document = loop.run(_worded(document, session)).to_json()
        for number in range(times):
            detail = _once(document, session, loop)
            print(f"try {number + 1}: {detail or 'holds'}")
            failed += detail is not None
        loop.run(session.target.close())
    return failed


async def _worded(document: dict[str, Any], session: Session) -> Workload:
    """A workload that no check made, in the words that this server takes; says what changed."""
    from harness.load.probe_prompts import ProbeSpelling
    from harness.oracles.probe import ProbeOracle
    from harness.targets.http import HttpTarget
    from harness.targets.wording import find_wording
    from workloads.workload import Workload

    workload, target, oracle = Workload.from_json(document), session.target, session.oracle
    if not isinstance(target, HttpTarget):
        return workload
    spelling = ProbeSpelling(oracle.config) if isinstance(oracle, ProbeOracle) else None
    wording = await find_wording(target, workload.requests[0], spelling)
    for sentence in wording.sentences():
        print(sentence)
    return wording.put(workload)


def _once(document: dict[str, Any], session: Session, loop: asyncio.Runner) -> str | None:
    """What failed, None if nothing did: the whole check where the file names one."""
    from harness.checks.draws import DrawsDiffer
    from harness.checks.registry import all_checks
    from harness.checks.runner import replay_check, replay_workload
    from workloads.workload import Workload

    recorded = document.get("failure")
    if not isinstance(recorded, dict):
        failure = replay_workload(Workload.from_json(document), session, loop.run)
        return failure.detail if failure else None
    check = all_checks().get(str(recorded.get("check_id")))
    if check is None:
        raise UserError(f"there is no check {recorded.get('check_id')!r} in this version")
    # The contents of prompts follow from the run's seed.
    session.seed = int(document.get("seed") or 0)
    try:
        failure = replay_check(check, session, loop.run, list(recorded.get("draws") or ()))
    except DrawsDiffer as error:
        raise UserError(f"the file is from another version of {check.id}: {error}") from None
    return failure.detail if failure else None
