"""`isobatch results index` refuses what holds no run, and then leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.app import main
from harness.cli.errors import ExitStatus


@pytest.mark.parametrize(
    ("name", "says"),
    [("none", "is not a folder"), ("file", "is not a folder"), ("empty", "there is no run in")],
)
def test_no_index_is_written_where_no_run_is(
    name: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit) as ended:
        main(["results", "index", str(tmp_path / name)])
    assert ended.value.code == ExitStatus.UNUSABLE
    error = capsys.readouterr().err
    assert f"{tmp_path / name}" in error
    assert says in error
    assert error.count("\n") == 1
    assert not list(tmp_path.rglob("*index*"))
