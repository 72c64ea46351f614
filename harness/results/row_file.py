"""A JSON Lines file that only grows, with the digest of what it holds so far.

Plain, each row is handed to the operating system at once. Compressed, rows wait for a frame of
zstd (RFC 8878): every frame can be read without the ones after it, so a crash loses at most the
rows of the frame that was not written yet. Either way the file ends with a whole row, also after a
full disk or Ctrl-C in the middle of a write.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import zstandard

from harness.results.document import RawFile

RowFormat = Literal["plain", "zstd"]

FRAME_BYTES: Final = 256 * 1024
"""Rows that make a frame, in bytes before compression."""

FRAME_S: Final = 2.0
"""A row that comes this long after the last frame makes one too, however small."""

LEVEL: Final = 3
"""Of zstd: higher ones gain a few per cent on rows and take several times as long."""


class RowFile:
    """Rows appended as they come.

    The digest is kept as the rows go by, so saving the document never reads the file again.
    `append`, `flush` and `close` raise OSError when the disk will not take the rows; those are
    then lost, and the file is as it was before them.
    """

    def __init__(self, folder: Path, name: str, rows: RowFormat = "plain") -> None:
        self.name = name
        packed = rows == "zstd"
        self.path = folder / (f"{name}.jsonl.zst" if packed else f"{name}.jsonl")
        self._pack = _compressor() if packed else None
        self._file = self.path.open("xb", buffering=0)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._flushed_s = time.monotonic()
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._rows = 0

    def append(self, row: Mapping[str, Any]) -> None:
        """Add one row. Raises ValueError for a number JSON does not have (NaN, infinity)."""
        line = json.dumps(row, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        content = line.encode() + b"\n"
        self._waiting.append(content)
        self._waiting_bytes += len(content)
        if self._pack is None or self._waiting_bytes >= FRAME_BYTES or self._is_late():
            self.flush()

    def flush(self) -> None:
        """Hand the rows that wait to the operating system, as a frame if compressed."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self._flushed_s = time.monotonic()
        if not waiting:
            return
        content = b"".join(waiting)
        self._write(content if self._pack is None else self._pack.compress(content))
        self._rows += len(waiting)

    def reference(self) -> RawFile:
        """What the document says of the rows that were flushed."""
        return {
            "name": self.name,
            "path": self.path.name,
            "media_type": "application/jsonl" if self._pack is None else "application/zstd",
            "rows": self._rows,
            "bytes": self._bytes,
            "sha256": self._digest.hexdigest(),
        }

    def close(self) -> None:
        """Flush and close the file; called again, no effect."""
        try:
            self.flush()
        finally:
            self._file.close()

    def _is_late(self) -> bool:
        return time.monotonic() - self._flushed_s >= FRAME_S

    def _write(self, content: bytes) -> None:
        view = memoryview(content)
        try:
            while view:
                view = view[self._file.write(view) :]
        except BaseException:
            with contextlib.suppress(OSError):
                self._file.seek(self._file.truncate(self._bytes))
            raise
        self._digest.update(content)
        self._bytes += len(content)


def _compressor() -> Any:
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
