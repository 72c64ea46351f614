"""Raw rows, plain and compressed."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from harness.metrics.request_row import from_row, to_row
from harness.metrics.row_files import read_requests
from harness.results import row_file
from harness.results.row_file import RowFile, RowFormat
from harness.results.row_reader import count_rows, read_rows
from harness.transcript import Ending, RequestTranscript

REQUESTS = [RequestTranscript(f"r{i}", Ending.COMPLETE, i / 3) for i in range(40)]


def written(folder: Path, rows: RowFormat) -> RowFile:
    file = RowFile(folder, "requests", rows)
    for request in REQUESTS:
        file.append(to_row(request))
    file.close()
    return file


@pytest.fixture
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_file, "FRAME_BYTES", 2000)


@pytest.mark.parametrize("rows", ["plain", "zstd"])
@pytest.mark.usefixtures("small_frames")
def test_rows_read_as_they_were_written(rows: RowFormat, tmp_path: Path):
    file = written(tmp_path, rows)
    assert read_requests(tmp_path) == REQUESTS
    assert read_requests(file.path) == REQUESTS
    reference = file.reference()
    content = file.path.read_bytes()
    assert (reference["bytes"], reference["rows"]) == (len(content), len(REQUESTS))
    assert reference["sha256"] == hashlib.sha256(content).hexdigest()
    assert count_rows(file.path, len(content)) == len(REQUESTS)
    if rows == "zstd":
        assert content.count(bytes.fromhex("28b52ffd")) >= 5, "several frames (RFC 8878, 3.1.1)"


@pytest.mark.parametrize("rows", ["plain", "zstd"])
@pytest.mark.usefixtures("small_frames")
def test_a_file_cut_anywhere_gives_the_rows_before_the_cut(rows: RowFormat, tmp_path: Path):
    """What a crash leaves: never an error, and never a row that was not written."""
    content = written(tmp_path, rows).path.read_bytes()
    cut = tmp_path / ("cut.jsonl" if rows == "plain" else "cut.jsonl.zst")
    kept = 0
    for length in [*range(0, len(content), 7), len(content)]:
        cut.write_bytes(content[:length])
        found = [from_row(row) for _, row in read_rows(cut)]
        assert found == REQUESTS[: len(found)]
        assert len(found) >= kept
        kept = len(found)
    assert kept == len(REQUESTS)


def test_damaged_rows_are_one_sentence(tmp_path: Path):
    content = bytearray(written(tmp_path, "zstd").path.read_bytes())
    content[len(content) // 2] ^= 0x40
    damaged = tmp_path / "damaged.jsonl.zst"
    damaged.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged.jsonl.zst"):
        read_requests(damaged)


def test_compressed_rows_wait_no_longer_than_they_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A slow run's rows would else stay in memory, where a crash takes them all."""
    file = RowFile(tmp_path, "requests", "zstd")
    for request in REQUESTS[:10]:
        file.append(to_row(request))
    assert len(list(read_rows(file.path))) == 0, "far from a whole frame"
    monkeypatch.setattr(row_file, "FRAME_S", 0.0)
    file.append(to_row(REQUESTS[10]))
    assert len(list(read_rows(file.path))) == 11
    file.close()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[1]", "line 1: not a request row: a JSON object is expected"),
        ("{}", "line 1: not a request row: it has no 'key'"),
        ('{"key": "a", "ending": "complete", "t_due_s": 0, "choices": []}', "not a request row"),
    ],
)
def test_a_row_of_something_else_is_one_sentence(content: str, says: str, tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text(content + "\n")
    with pytest.raises(ValueError, match=re.escape(says)):
        read_requests(path)
