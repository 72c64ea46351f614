"""Raw rows, plain and compressed."""

from __future__ import annotations

import json
from pathlib import Path

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
