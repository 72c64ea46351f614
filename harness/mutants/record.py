"""The kill matrix on disk: added to row by row, by several processes at once if need be."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.mutants.matrix import FORMAT, matrix_document, matrix_page
from harness.results.atomic import write_atomically

if TYPE_CHECKING:
    from harness.checks.registry import Check

_LOCK: Final = ".lock"


@dataclass(frozen=True, slots=True)
class MatrixRecord:
    """``matrix.json`` and ``matrix.html`` in ``folder``; what another process adds is kept."""

    folder: Path
    checks: Sequence[Check]
    order: Sequence[str]

    def killed(self) -> set[str]:
        """The faults that were killed. A survivor may only have run out of time: it is tried again.

        Raises ValueError for another kind of file.
        """
        return {row["fault"] for row in self._read()["rows"] if row["killed"]}

    def runs(self) -> set[tuple[str, str, int]]:
        """Setting, budget and seed of the healthy runs that were made."""
        return {(r["setting"], r["budget"], r["seed"]) for r in self._read()["healthy"]}

    def add_row(self, row: dict[str, Any]) -> dict[str, Any]:
        """Add or replace one fault's row; the whole document as it is then."""
        with self._locked() as document:
            rows = {r["fault"]: r for r in document["rows"]} | {row["fault"]: row}
            return self._write([rows[n] for n in self.order if n in rows], document["healthy"])

    def add_healthy(self, run: dict[str, Any]) -> dict[str, Any]:
        """Add one healthy run; the whole document as it is then."""
        with self._locked() as document:
            return self._write(document["rows"], [*document["healthy"], run])

    def document(self) -> dict[str, Any]:
        """Everything found so far, written anew."""
        with self._locked() as document:
            return self._write(document["rows"], document["healthy"])

    @contextmanager
    def _locked(self) -> Iterator[dict[str, Any]]:
        path = self.folder / _LOCK
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self._read()

    def _read(self) -> dict[str, Any]:
        path = self.folder / "matrix.json"
        if not path.exists():
            return {"rows": [], "healthy": []}
        document = json.loads(path.read_text("utf-8"))
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError(f"{path} is no kill matrix of this version; name another with --out")
        return document

    def _write(self, rows: list[dict[str, Any]], healthy: list[dict[str, Any]]) -> dict[str, Any]:
        from harness.results.environment import tool

        known = {row["fault"] for row in rows}
        not_run = [name for name in self.order if name not in known]
        document = matrix_document(rows, self.checks, healthy, not_run, tool=tool())
        text = json.dumps(document, indent=1) + "\n"
        write_atomically(self.folder / "matrix.json", text.encode())
        write_atomically(self.folder / "matrix.html", matrix_page(document).encode())
        return document
