"""A failure can be run again, shown as curl lines, and reported upstream."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from harness.bug_report import curl_lines, markdown
from harness.checks.draws import DrawsDiffer
from harness.checks.registry import all_checks
from harness.checks.runner import replay_check, replay_workload
from harness.checks.suite import SuiteOptions, open_session
from harness.cli.app import main
from harness.cli.errors import ExitStatus
from reference_engine.probe import VARIANTS
from tests.checks.conftest import RunChecks
from tests.checks.fake_server import FakeServer, NeighbourVisible
from workloads.workload import AfterTokens, Workload, WorkloadRequest


def test_a_recorded_failure_fails_again_and_holds_on_a_right_server(
    run_checks: RunChecks,
) -> None:
    import asyncio

    failure = run_checks(NeighbourVisible, "EQV-1").results[0].failures[0]
    document = json.loads(json.dumps(failure.to_json("EQV-1")))
    draws = document["failure"]["draws"]
    workload = Workload.from_json(document)
    check = all_checks()["EQV-1"]
    with asyncio.Runner() as loop:
        for server, fails in ((NeighbourVisible, True), (FakeServer, False)):
            target = server(VARIANTS["eos"])
            session = loop.run(open_session(target, SuiteOptions((), seed=1)))
            assert bool(replay_check(check, session, loop.run, draws)) is fails
            assert bool(replay_workload(workload, session, loop.run)) is fails
        with pytest.raises(DrawsDiffer):
            replay_check(check, session, loop.run, [])


def test_curl_lines_hold_every_request_and_say_what_curl_cannot_do() -> None:
    workload = Workload(
        (
            WorkloadRequest(
                "a", prompt_text="it's", params={"max_tokens": 4}, headers={"X-Request-Id": "o'k"}
            ),
            WorkloadRequest("b", prompt_ids=(1, 2), due_s=0.5, cancel_after_s=2),
            WorkloadRequest("c", prompt_text="x", after=AfterTokens("a", 3), cancel_after_tokens=2),
        )
    )
    script = curl_lines(workload, "http://127.0.0.1:8000", "m")
    calls = [line for line in script.splitlines() if line.startswith("curl")]
    bodies = [json.loads(shlex.split(line)[shlex.split(line).index("-d") + 1]) for line in calls]
    assert [b["prompt"] for b in bodies] == ["it's", [1, 2], "x"]
    assert all(b["model"] == "m" for b in bodies)
    assert "X-Request-Id: o'k" in shlex.split(calls[0])
    assert "--max-time 2" in calls[1]
    assert "sleep 0.5" in script
    assert "begins at token 3 of a" in script
    assert "hangs up after 2 tokens" in script


def test_the_bug_report_says_what_is_and_what_should_be(run_checks: RunChecks) -> None:
    failure = run_checks(NeighbourVisible, "EQV-1").results[0].failures[0]
    report = markdown(failure.to_json("EQV-1"), {"name": "somebody's server", "version": "1"})
    assert failure.sentence in report
    assert failure.detail in report
    assert "somebody's server" in report
    assert report.count("```") % 2 == 0
    with pytest.raises(ValueError, match="no failure"):
        markdown(Workload(()).to_json())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("nonsense", "no workload"),
        ("{}", "no workload"),
        ('{"format": 1}', "no workload"),
        ("[1]", "a JSON object is expected"),
        ('{"format": "isobatch.workload/1", "requests": [1]}', "a list of JSON objects"),
    ],
)
def test_a_file_that_cannot_be_replayed_is_one_line(
    content: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.json"
    file.write_text(content)
    for arguments in (["replay", str(file)], ["replay", str(tmp_path / "none")]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == ExitStatus.UNUSABLE
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert says in error or "cannot read" in error
