"""The example workflow: its steps are there, and the summary it writes shows the failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import checks
from harness.checks.catalogue_page import checks_page
from tests.checks.conftest import RunChecks
from tests.checks.fake_server import NeighbourVisible

FILE = Path(checks.__file__).with_name("github_actions_example.yml")


@pytest.fixture(scope="module")
def steps() -> list[dict[str, Any]]:
    workflow = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    (job,) = workflow["jobs"].values()
    assert job["defaults"]["run"]["shell"] == "bash", "which GitHub runs with -e and pipefail"
    found: list[dict[str, Any]] = job["steps"]
    return found


def _named(steps: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (step,) = [s for s in steps if s.get("name") == name]
    return step


def _run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The script as GitHub runs it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path, "GITHUB_STEP_SUMMARY": str(folder / "summary.md")},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_what_must_happen_after_a_failure_happens_always(steps: list[dict[str, Any]]) -> None:
    after = steps[steps.index(_named(steps, "Check")) + 1 :]
    assert len(after) == 3
    assert all(step["if"] == "always()" for step in after)
    assert "runs" in after[-1]["with"]["path"].split()


def test_the_summary_shows_the_output_and_every_failure(
    steps: list[dict[str, Any]], run_checks: RunChecks, tmp_path: Path
) -> None:
    failure = run_checks(NeighbourVisible, "EQV-1", shrink_runs=4).results[0].failures[0]
    failures = tmp_path / "runs" / "one" / "failures"
    failures.mkdir(parents=True)
    (failures / "EQV-1.json").write_text(json.dumps(failure.to_json("EQV-1")))
    (tmp_path / "check.log").write_text("EQV-1 fail\n")
    ended = _run(_named(steps, "Write the step summary")["run"], tmp_path)
    assert ended.returncode == 0, ended.stderr
    summary = (tmp_path / "summary.md").read_text()
    assert "EQV-1 fail" in summary
    assert failure.detail in summary
    assert "curl" in summary


def test_a_server_that_never_came_up_is_in_the_summary(
    steps: list[dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "server.log").write_text("no such flag\n")
    ended = _run(_named(steps, "Write the step summary")["run"], tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "no such flag" in (tmp_path / "summary.md").read_text()
    assert _run(_named(steps, "Write the report")["run"], tmp_path).returncode == 0


def test_the_page_of_the_checks_links_to_it() -> None:
    assert f"({FILE.name})" in checks_page([])
