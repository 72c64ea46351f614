"""Reads the raw request rows of a run again: a run folder, a .jsonl file, or a .jsonl.zst file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.metrics.request_row import from_row
from harness.results.row_reader import read_rows
from harness.transcript import RequestTranscript

_NAMES: Final = ("requests.jsonl", "requests.jsonl.zst")


def read_requests(path: Path) -> list[RequestTranscript]:
    """The requests of a run. Raises ValueError with one sentence that names the file and line."""
    file = _row_file(path)
    requests = []
    for number, row in read_rows(file):
        try:
            requests.append(from_row(row))
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: {error}") from None
    if not requests:
        raise ValueError(f"{file} holds no requests")
    return requests


def _row_file(path: Path) -> Path:
    if path.is_file():
        return path
    for name in _NAMES:
        if (path / name).is_file():
            return path / name
    raise ValueError(f"{path} is neither a file of request rows nor a folder with {_NAMES[0]}")
