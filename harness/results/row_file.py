"""A JSON Lines file that only grows, with the digest of what it holds so far."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.results.document import RawFile


class RowFile:
    """Rows appended as they come; each is handed to the operating system at once.

    A crash of this process loses no row. The digest is kept as the rows go by, so saving the
    document never reads the file again. Raises OSError when the disk will not take a row.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.path = folder / f"{name}.jsonl"
        self._file = self.path.open("xb", buffering=0)
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._rows = 0

    def append(self, row: Mapping[str, Any]) -> None:
        """Add one row. Raises ValueError for a number JSON does not have (NaN, infinity)."""
        line = json.dumps(row, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        content = line.encode() + b"\n"
        view = memoryview(content)
        while view:
            view = view[self._file.write(view) :]
        self._digest.update(content)
        self._bytes += len(content)
        self._rows += 1

    def reference(self) -> RawFile:
        """What the document says of this file now."""
        return {
            "name": self.name,
            "path": self.path.name,
            "media_type": "application/jsonl",
            "rows": self._rows,
            "bytes": self._bytes,
            "sha256": self._digest.hexdigest(),
        }

    def close(self) -> None:
        """Close the file; what was appended stays."""
        self._file.close()
