"""The checks as pytest items: ids, markers, skips, known failures, and exit statuses."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.mutants.thread_server import thread_server
from harness.pytest_plugin import known_failures
from reference_engine.probe import VARIANTS

if TYPE_CHECKING:
    from reference_engine.model import LoadedModel


def _pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Pytest on the checks, with no other plugin: loading those that are installed takes longer."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    command += ["-p", "harness.pytest_plugin", "--pyargs"]
    return subprocess.run(
        [*command, "harness.checks", *arguments],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def test_the_plugin_is_found_by_pytest() -> None:
    (found,) = entry_points(group="pytest11", name="isobatch")
    assert found.value == "harness.pytest_plugin"


def test_checks_are_items_with_their_ids_and_the_markers_of_their_chapters(tmp_path: Path) -> None:
    listed = _pytest(
        tmp_path, "--isobatch-url", "http://127.0.0.1:9", "--collect-only", "-q", "-m", "ISO or STR"
    )
    ids = [line for line in listed.stdout.splitlines() if line.startswith(("ISO-", "STR-"))]
    assert "ISO-1" in ids
    assert "STR-1" in ids
    assert len(ids) >= 18
    assert not any(line.startswith("EQV-") for line in listed.stdout.splitlines())


def test_a_server_that_is_not_there_ends_the_run_in_one_line(tmp_path: Path) -> None:
    ended = _pytest(tmp_path, "--isobatch-url", "http://127.0.0.1:9", "-k", "EQV-1", "-q")
    assert ended.returncode == 2
    assert "cannot be reached" in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr


def test_known_failures_need_their_issue(tmp_path: Path) -> None:
    file = tmp_path / "known.txt"
    file.write_text("# those of version 1\nEQV-1 vendor#12\n\nISO-2 vendor#13 and its sequel\n")
    assert known_failures(str(file)) == {"EQV-1": "vendor#12", "ISO-2": "vendor#13 and its sequel"}
    file.write_text("EQV-1\n")
    with pytest.raises(pytest.UsageError, match="upstream issue"):
        known_failures(str(file))
    with pytest.raises(pytest.UsageError, match="cannot read"):
        known_failures(str(tmp_path / "none"))


def test_verdicts_become_outcomes(model: LoadedModel, probe_folder: Path, tmp_path: Path) -> None:
    """On a server with a fault and much cache: a check fails, one passes, one is expected to
    fail, and one, about eviction, cannot reach what it is about."""
    known = tmp_path / "known.txt"
    known.write_text("LEN-2 vendor#12\n")
    with thread_server(
        model,
        probe_folder,
        VARIANTS["eos"].name,
        fault="usage-without-last-token",
    ) as server:
        ended = _pytest(
            tmp_path,
            *("--isobatch-url", server.url, "--isobatch-xfail", str(known)),
            *("-k", "LEN-2 or LEN-3 or LEN-4 or CCH-6", "--junitxml", str(tmp_path / "j.xml")),
        )
    assert ended.returncode == 1, ended.stdout
    cases = {c.get("name"): c for c in ET.parse(tmp_path / "j.xml").iter("testcase")}
    assert cases["LEN-4"].find("failure") is not None
    assert cases["LEN-3"].find("failure") is None
    assert cases["LEN-2"].find("skipped") is not None, "an expected failure"
    skipped = cases["CCH-6"].find("skipped")
    assert skipped is not None
    assert "inconclusive" in (skipped.get("message") or "")
    assert "curl" in ended.stdout, "the failure is shown as something to run"
