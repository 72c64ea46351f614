"""`isobatch demo` as a user runs it: the status follows the truth, and the folder holds it."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import main
from harness.results import read_result


def demo(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness.cli", "demo", "--out", str(out), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


@pytest.mark.slow
def test_a_healthy_engine_passes(tmp_path: Path) -> None:
    """Status 0, every answer exact, a complete document and a page with the five pictures."""
    done = demo(tmp_path, "--only", "EQV-1,LEN-1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "72 of 72 answers exact" in done.stdout
    (folder,) = tmp_path.iterdir()
    document = read_result(folder)
    assert document["status"] == "complete"
    assert [v["verdict"] for v in document["verdicts"]] == ["pass", "pass"]
    assert {"steps", "requests"} == {raw["name"] for raw in document["raw"]}
    assert all(raw["rows"] > 0 for raw in document["raw"])
    assert (folder / "report.html").read_text().count("<svg ") == 5


@pytest.mark.slow
def test_a_planted_fault_is_caught(tmp_path: Path) -> None:
    """Status 1: wrong tokens under load, a failing check, and its smallest workload on disk."""
    done = demo(tmp_path, "--only", "EQV-1", "--fault", "neighbour-visible")
    assert done.returncode == 1, done.stdout + done.stderr
    (folder,) = tmp_path.iterdir()
    document = read_result(folder)
    assert [v["verdict"] for v in document["verdicts"]] == ["fail"]
    assert list((folder / "failures").iterdir())
    assert "What failed" in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--variant", "nonsense"], "no probe variant 'nonsense'"),
        (["--only", "XYZ-1"], "XYZ-1"),
        (["--fault", "gremlin"], "no fault 'gremlin'"),
        (["--out", "/dev/null/x"], "cannot write"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback for what the user can put right, and no folder for a run that never began."""
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--out", str(tmp_path / "runs"), *arguments])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert complaint in line
    assert not (tmp_path / "runs").exists()
