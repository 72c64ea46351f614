"""The run folder is complete after every step, and says how the run ended."""

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.results import RunFolder, RunFolderError, read_result, row_file, run_folder
from harness.results.row_file import RowFile, RowFormat
from harness.results.row_reader import read_rows
from harness.results.run_folder import RESERVE_BYTES, RESERVE_FILE
from harness.verdict import CheckResult, Failure, Verdict
from workloads.workload import Workload, WorkloadRequest

COMMAND = ["isobatch", "check", "http://127.0.0.1:1"]
WORKLOAD = Workload((WorkloadRequest("a", prompt_ids=(1, 2)),), origin="test", seed=7)


def failed_check() -> CheckResult:
    return CheckResult(
        "EQV-1",
        Verdict.FAIL,
        "ragged batch equals solo",
        evidence={"overlapping_requests": 3},
        failures=[Failure("token 4 is 9, should be 12", "a", [12], [9], 4, workload=WORKLOAD)],
        requests=5,
    )


def test_a_clean_block_ends_complete(tmp_path: Path) -> None:
    """The document tells the whole run: times, tool, verdict, failing workload."""
    with RunFolder.create(tmp_path, kind="check", command=COMMAND) as run:
        run.add_workload(WORKLOAD, "tiny")
        run.add_verdict(failed_check())
    document = read_result(run.path)
    assert document["status"] == "complete"
    assert document["command"] == COMMAND
    assert document["duration_s"] is not None
    assert document["workloads"][0]["sha256"] == WORKLOAD.sha256
    (failure,) = document["verdicts"][0]["failures"]
    assert failure["workload_path"] == "failures/EQV-1-1.json"
    smallest = json.loads((run.path / failure["workload_path"]).read_bytes())
    assert Workload.from_json(smallest) == WORKLOAD


def test_a_failure_without_a_workload_has_a_file_to_replay_too(tmp_path: Path) -> None:
    """A check that sends raw bytes has no workload, but its draws run it again."""
    result = CheckResult("API-9", Verdict.FAIL, "refused", failures=[Failure("refused", draws=[7])])
    with RunFolder.create(tmp_path, kind="check", command=COMMAND) as run:
        run.add_verdict(result)
    recorded = json.loads((run.path / "failures/API-9-1.json").read_bytes())
    assert recorded["failure"]["check_id"] == "API-9"
    assert recorded["failure"]["draws"] == [7]


def test_everything_is_on_disk_before_the_end(tmp_path: Path) -> None:
    """A reader that looks while the run goes on sees each verdict and each row."""
    run = RunFolder.create(tmp_path, kind="check", command=COMMAND)
    run.append("requests", {"key": "a", "ttft_s": None})
    run.add_verdict(failed_check())
    document = read_result(run.path)
    assert document["status"] == "running"
    assert [v["check_id"] for v in document["verdicts"]] == ["EQV-1"]
    assert document["raw"][0]["rows"] == 1
    run.finish("complete")


def test_the_digest_covers_the_rows(tmp_path: Path) -> None:
    """The sha256 in the document is that of the file."""
    with RunFolder.create(tmp_path, kind="bench", command=COMMAND) as run:
        for index in range(50):
            run.append("requests", {"key": f"r{index}", "text": "é\n"})
    (raw,) = read_result(run.path)["raw"]
    content = (run.path / raw["path"]).read_bytes()
    assert (raw["rows"], raw["bytes"]) == (50, len(content))
    assert raw["sha256"] == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("error", "status"),
    [(KeyboardInterrupt(), "interrupted"), (RuntimeError("broke"), "crashed")],
)
def test_an_exception_is_recorded_and_goes_on(
    error: BaseException, status: str, tmp_path: Path
) -> None:
    """Ctrl-C and a crash leave what was found, and the exception is not swallowed."""
    with (  # noqa: PT012
        pytest.raises(type(error)),
        RunFolder.create(tmp_path, kind="check", command=COMMAND) as run,
    ):
        run.add_verdict(failed_check())
        raise error
    document = read_result(run.path)
    assert document["status"] == status
    assert len(document["verdicts"]) == 1
    assert type(error).__name__ in (document["error"] or "")


KILLED = """
import os, signal, sys
from pathlib import Path
from harness.results import RunFolder
run = RunFolder.create(Path(sys.argv[1]), kind="bench", command=[])
run.append("requests", {"key": "saved"})
run.save()
run.append("requests", {"key": "after the last save"})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_a_readable_folder(tmp_path: Path) -> None:
    """Rows written after the last save are there too; the digest holds for its own bytes."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    (folder,) = tmp_path.iterdir()
    document = read_result(folder)
    (raw,) = document["raw"]
    content = (folder / raw["path"]).read_bytes()
    assert document["status"] == "running"
    assert len(content.splitlines()) == 2
    assert hashlib.sha256(content[: raw["bytes"]]).hexdigest() == raw["sha256"]


@pytest.mark.parametrize("rows", ["plain", "zstd"])
def test_a_refused_write_leaves_whole_rows(
    rows: RowFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that takes half of a row and refuses the rest: the half is taken back."""
    monkeypatch.setattr(row_file, "FRAME_BYTES", 0)
    file = RowFile(tmp_path, "requests", rows)
    file.append({"key": "a"})
    honest = file._file
    file._file = HalfFull(honest)
    with pytest.raises(OSError, match="No space left"):
        file.append({"key": "b", "text": "x" * 100})
    file._file = honest
    file.append({"key": "c"})
    file.close()
    assert [row["key"] for _, row in read_rows(file.path)] == ["a", "c"]
    reference = file.reference()
    assert (reference["rows"], reference["bytes"]) == (2, file.path.stat().st_size)
    assert reference["sha256"] == hashlib.sha256(file.path.read_bytes()).hexdigest()


class HalfFull:
    """Takes a part of the first write and refuses the next."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._full = False
        self.truncate, self.seek = file.truncate, file.seek

    def write(self, content: memoryview) -> int:
        if self._full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._full = True
        return int(self._file.write(content[:10]))


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    """The parent is a file: the error names the folder and what to do."""
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(RunFolderError, match=r"cannot write the run folder .*--out"):
        RunFolder.create(tmp_path / "runs", kind="check", command=COMMAND)


def test_a_full_disk_is_one_sentence_and_keeps_the_last_document(tmp_path: Path) -> None:
    """A row that the disk refuses raises; the document saved before it stays whole."""
    run = RunFolder.create(tmp_path, kind="check", command=COMMAND)
    before = (run.path / "result.json").read_bytes()
    with pytest.raises(RunFolderError, match="no space left on device"), run:  # noqa: PT012
        run.append("requests", {"key": "a"})
        run._row_files["requests"].close()
        run._row_files["requests"]._file = open("/dev/full", "ab", buffering=0)  # noqa: SIM115
        run.append("requests", {"key": "b"})
    after = read_result(run.path)
    assert after["status"] == "crashed"
    assert after["run_id"] == json.loads(before)["run_id"]
    assert after["raw"][0]["rows"] == 1


def full_while_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk without a free byte but for what the run itself gives back."""

    def write(path: Path, content: bytes) -> None:
        if (path.parent / RESERVE_FILE).exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        honest(path, content)

    honest = run_folder.write_atomically
    monkeypatch.setattr(run_folder, "write_atomically", write)


def test_a_disk_that_filled_up_still_takes_how_the_run_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reserve is given up for the last document: it does not say that the run still runs."""
    run = RunFolder.create(tmp_path, kind="check", command=COMMAND)
    assert (run.path / RESERVE_FILE).stat().st_size == RESERVE_BYTES
    full_while_reserved(monkeypatch)
    with pytest.raises(RunFolderError, match="no space left on device"), run:
        run.add_verdict(CheckResult("EQV-2", Verdict.PASS, "holds"))
    after = read_result(run.path)
    assert after["status"] == "crashed"
    assert "no space left" in (after["error"] or "")
    assert [v["check_id"] for v in after["verdicts"]] == ["EQV-2"], "what was found is in it"
    assert [p.name for p in run.path.iterdir()] == ["result.json"]


def test_rows_that_the_disk_refuses_at_the_very_end_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that waited for their frame are missing: the run is not complete."""
    run = RunFolder.create(tmp_path, kind="bench", command=COMMAND, rows="zstd")
    with pytest.raises(RunFolderError, match="no space left on device"), run:  # noqa: PT012
        run.append("requests", {"key": "a"})
        run._row_files["requests"]._file.close()
        run._row_files["requests"]._file = open("/dev/full", "ab", buffering=0)  # noqa: SIM115
    after = read_result(run.path)
    assert (after["status"], after["raw"][0]["rows"]) == ("crashed", 0)


def test_two_runs_never_share_a_folder(tmp_path: Path) -> None:
    """Results are append-only: a new run makes a new folder."""
    runs = [RunFolder.create(tmp_path, kind="check", command=COMMAND) for _ in range(20)]
    assert len({run.path for run in runs}) == 20


def test_no_temporary_file_is_left(tmp_path: Path) -> None:
    """Only what the document names is in the folder."""
    with RunFolder.create(tmp_path, kind="check", command=COMMAND) as run:
        run.add_verdict(failed_check())
    assert sorted(p.name for p in run.path.iterdir()) == ["failures", "result.json"]
