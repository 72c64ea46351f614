"""Raw rows, plain and compressed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from harness.metrics.request_row import to_row
from harness.metrics.row_files import compress, read_requests
from harness.transcript import Ending, RequestTranscript


def test_compressed_rows_read_the_same(tmp_path: Path):
    requests = [RequestTranscript(f"r{i}", Ending.COMPLETE, i / 3) for i in range(5)]
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(to_row(r)) + "\n" for r in requests))
    assert read_requests(tmp_path) == requests
    packed = compress(path)
    assert not path.exists()
    assert read_requests(packed) == requests
    assert read_requests(tmp_path) == requests


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
