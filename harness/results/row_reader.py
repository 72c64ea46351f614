"""Reads a row file back: JSON Lines, plain or compressed with zstd (``.zst``).

What a crash cut short is left out: a last line that is no JSON and has no end, a last frame that
is not whole. Anything else that is wrong is an error.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import zstandard


def read_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """The rows with their line numbers, from 1.

    Raises ValueError with one sentence that names the file, and the line where there is one.
    """
    try:
        with path.open("rb") as file, _lines_of(path, file) as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = json.loads(line)
                except ValueError as error:
                    if not line.endswith(b"\n"):
                        return
                    raise ValueError(f"{path}, line {number}: not JSON: {error}") from None
                yield number, row
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}"
        ) from None
    except zstandard.ZstdError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def count_rows(path: Path, first_bytes: int) -> int:
    """How many rows the first bytes of a file hold. Raises ValueError for no zstd, OSError."""
    with path.open("rb") as file, _lines_of(path, _First(file, first_bytes)) as lines:
        try:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: lines.read(1 << 20), b""))
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from None


def _lines_of(path: Path, file: Any) -> BinaryIO:
    if path.suffix == ".zst":
        file = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    return io.BufferedReader(file) if not isinstance(file, io.BufferedIOBase) else file  # type: ignore[return-value]


class _First(io.RawIOBase):
    """The first bytes of a file."""

    def __init__(self, file: BinaryIO, left: int) -> None:
        self._file = file
        self._left = left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._file.read(min(len(buffer), self._left))
        buffer[: len(piece)] = piece
        self._left -= len(piece)
        return len(piece)
