"""`isobatch results verify` finds every way in which a folder can stop telling the truth."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.results.index import write_index
from harness.results.run_folder import RunFolder
from harness.results.verify import verify
from harness.verdict import CheckResult, Failure, Verdict
from workloads.workload import Workload, WorkloadRequest

WORKLOAD = Workload((WorkloadRequest("a", prompt_ids=(1, 2)),), origin="test", seed=7)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunFolder.create(tmp_path, kind="check", command=["isobatch"]) as folder:
        folder.add_workload(WORKLOAD, "tiny")
        folder.append("requests", {"key": "a", "t_s": 0.2431})
        folder.append("requests", {"key": "b", "t_s": 0.5})
        failure = Failure("holds", "a", [1], [2], 0, workload=WORKLOAD)
        folder.add_verdict(CheckResult("EQV-1", Verdict.FAIL, "holds", failures=[failure]))
    (tmp_path / "README.md").write_text(
        f"It took [1 run](https://x.org/9.json) of {folder.path.name}"
    )
    return folder.path


def changed(**fields: Any) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        document = json.loads((run / "result.json").read_bytes())
        (run / "result.json").write_text(json.dumps({**document, **fields}))

    return change


def appended(name: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        with (run / name).open("ab") as file:
            file.write(b"{}\n")

    return change


def edited(run: Path) -> None:
    file = run / "requests.jsonl"
    file.write_bytes(file.read_bytes().replace(b"0.2431", b"0.1431"))


def truncated(run: Path) -> None:
    file = run / "requests.jsonl"
    file.write_bytes(file.read_bytes()[:-4])


def other_workload(run: Path) -> None:
    file = run / "workload-tiny.json"
    file.write_text(file.read_text().replace('"seed": 7', '"seed": 8'))


def test_an_honest_folder_has_no_problem(run: Path) -> None:
    """Document, rows, workload and failing workload all fit."""
    found = verify(run.parent)
    assert found.problems == ()
    assert (found.runs, found.files) == (1, 4)


@pytest.mark.parametrize(
    ("break_it", "complaint"),
    [
        (changed(format="isobatch.result/9"), "format: "),
        (changed(status="running"), "never ended"),
        (edited, "sha256 differs"),
        (truncated, "should have"),
        (appended("requests.jsonl"), "is longer than"),
        (other_workload, "not the workload of the run"),
        (lambda run: (run / "requests.jsonl").unlink(), "requests.jsonl is missing"),
        (lambda run: (run / "failures" / "EQV-1-1.json").unlink(), "EQV-1-1.json is missing"),
        (lambda run: (run / "failures" / "EQV-1-1.json").write_text("x"), "is no workload"),
    ],
)
def test_each_breach_is_found(run: Path, break_it: Callable[[Path], None], complaint: str) -> None:
    """One change, one problem, and the sentence names it."""
    break_it(run)
    (problem,) = verify(run.parent).problems
    assert complaint in str(problem)


def test_compressed_rows_are_held_to_their_number_too(tmp_path: Path) -> None:
    """The digest of the file says nothing of how many rows are in it."""
    with RunFolder.create(tmp_path, kind="bench", command=["isobatch"], rows="zstd") as folder:
        for key in "abc":
            folder.append("requests", {"key": key})
    assert verify(tmp_path).problems == ()
    [raw] = folder.document["raw"]
    assert (raw["path"], raw["media_type"]) == ("requests.jsonl.zst", "application/zstd")
    changed(raw=[{**raw, "rows": 4}])(folder.path)
    (problem,) = verify(tmp_path).problems
    assert "has 3 rows, should have 4" in str(problem)


@pytest.mark.parametrize(
    ("label", "right"),
    [
        ("243 ms", True),
        ("243.1 ms", True),
        ("0.24 s", True),
        ("244 ms", False),
        ("0.2 of 2", True),
        ("50 %", True),
        ("51 %", False),
    ],
)
def test_a_quoted_number_must_be_in_its_file(
    label: str, right: bool, tmp_path: Path, run: Path
) -> None:
    """Rounded as shown, in the unit shown; anything else is a misquotation."""
    (tmp_path / "numbers.json").write_text(json.dumps({"a": [0.2431, {"b": 0.5}, 2, True]}))
    (tmp_path / "README.md").write_text(f"See [{label}](numbers.json).")
    assert (verify(tmp_path).problems == ()) is right


def test_an_index_that_is_not_of_these_runs_is_a_problem(run: Path) -> None:
    """The index is derived: a run added or changed afterwards shows."""
    write_index(run.parent)
    assert verify(run.parent).problems == ()
    changed(error="later")(run)
    (problem,) = verify(run.parent).problems
    assert "not the index" in str(problem)


def test_a_quotation_of_a_missing_file_is_a_problem(tmp_path: Path, run: Path) -> None:
    """A link to nothing cannot vouch for a number."""
    (tmp_path / "README.md").write_text("See [12 ms](gone.json).")
    (problem,) = verify(tmp_path).problems
    assert "no JSON file" in str(problem)


def test_the_command_tells_and_fails(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 0 for an honest folder, 1 for a broken one, 2 where there is nothing."""
    with pytest.raises(SystemExit) as ended:
        main(["results", "verify", str(run.parent)])
    assert ended.value.code == 0
    edited(run)
    with pytest.raises(SystemExit) as ended:
        main(["results", "verify", str(run.parent)])
    assert ended.value.code == 1
    assert "sha256 differs" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["results", "verify", str(run / "nowhere")])
    assert ended.value.code == 2
