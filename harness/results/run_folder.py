"""The run folder: one folder a run, complete on disk after every step, never written twice.

Context: a run of minutes is stopped by Ctrl-C, by a dead server, by a full disk. What was found
until then is the user's. So the document is saved after every verdict, rows go to their own files
as they come, and the document says how the run ended. A document that still says ``running`` when
nobody runs it is a crash that could not say so.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from harness.cli.errors import UserError
from harness.results.atomic import write_atomically
from harness.results.determinism_grade import determinism_grade
from harness.results.document import (
    FORMAT,
    RESULT_FILE,
    ClientHealth,
    FailureRow,
    GateSection,
    MetricRow,
    ResultDocument,
    Server,
    Status,
    VerdictRow,
    encode,
)
from harness.results.environment import environment, tool
from harness.results.row_file import RowFile, RowFormat
from harness.verdict import CheckResult, Failure
from workloads.workload import Workload

RESERVE_FILE: Final = ".reserve"
RESERVE_BYTES: Final = 512 * 1024
"""Held on the disk while the run goes on and given up for the last document, which must say how the
run ended: also on a disk that the run, or somebody else, has filled."""


class RunFolderError(UserError):
    """The run folder cannot be written; the message names the folder, the reason and the cure."""


class RunFolder:
    """Writes one run. Use it as a context manager: how the block ends is how the run ended."""

    def __init__(self, path: Path, document: ResultDocument, rows: RowFormat = "plain") -> None:
        self.path = path
        self._rows: RowFormat = rows
        self.document = document
        self._row_files: dict[str, RowFile] = {}
        self._t_start_s = time.monotonic()
        self._in_vain: str | None = None

    @classmethod
    def create(
        cls, parent: Path, *, kind: str, command: Sequence[str], rows: RowFormat = "plain"
    ) -> Self:
        """Make ``parent/<time>-<kind>-<random>`` and write the first document into it.

        ``kind`` is a word such as check, bench or demo. Of ``command``'s program only the name is
        kept: where it is installed is nobody's business. ``rows`` says how row files are written:
        plain JSON Lines, or compressed with zstd. Raises RunFolderError when ``parent``
        cannot be written.
        """
        now = datetime.now(UTC)
        run_id = f"{now:%Y%m%dT%H%M%SZ}-{kind}-{secrets.token_hex(3)}"
        path = parent / run_id
        with _explained(path):
            path.mkdir(parents=True)
            # Random, so that a disk that compresses holds it in full.
            (path / RESERVE_FILE).write_bytes(os.urandom(RESERVE_BYTES))
        run = cls(path, _new_document(run_id, kind, command, now), rows)
        run.save()
        return run

    def begin_rows(self, name: str) -> None:
        """Make the row file ``name``, empty, and save: the document names it from the start."""
        with _explained(self.path):
            self._row_files[name] = RowFile(self.path, name, self._rows)
        self.save()

    def append(self, name: str, row: Mapping[str, Any]) -> None:
        """Add one row to the row file ``name``; the document refers to it from the next save on."""
        with _explained(self.path):
            if name not in self._row_files:
                self._row_files[name] = RowFile(self.path, name, self._rows)
            self._row_files[name].append(row)

    def add_verdict(self, result: CheckResult) -> None:
        """Record a check's result, its failing workloads as files, and save."""
        failures = [self._failure(result.check_id, i, f) for i, f in enumerate(result.failures)]
        self.document["verdicts"].append(_verdict_row(result, failures))
        self.document["determinism_grade"] = determinism_grade(self.document["verdicts"])
        self.save()

    def add_metrics(self, rows: Iterable[MetricRow]) -> None:
        """Record measured numbers and save."""
        self.document["metrics"].extend(rows)
        self.save()

    def add_workload(self, workload: Workload, name: str) -> None:
        """Write a workload as ``workload-NAME.json``, refer to it, and save."""
        file = f"workload-{name}.json"
        self.write_file(file, _json_bytes(workload.to_json()))
        self.document["workloads"].append(
            {
                "name": name,
                "origin": workload.origin,
                "sha256": workload.sha256,
                "seed": workload.seed,
                "requests": len(workload.requests),
                "path": file,
            }
        )
        self.save()

    def set_server(self, **fields: Any) -> None:
        """Record what is known of the server; ``sources`` is merged, other fields replaced."""
        server: dict[str, Any] = dict(self.document["server"])
        sources = {**server["sources"], **fields.pop("sources", {})}
        self.document["server"] = {**server, **fields, "sources": sources}  # type: ignore[typeddict-item]
        self.save()

    def set_client_health(self, health: ClientHealth) -> None:
        """Record whether the client kept its own promises, and save."""
        self.document["client_health"] = health
        self.save()

    def set_oracle(self, name: str, description: str) -> None:
        """Record who knew the right answers and what that stands on, and save."""
        self.document["oracle"] = {"name": name, "description": description}
        self.save()

    def set_gate(self, gate: GateSection) -> None:
        """Record what a gate concluded, and save."""
        self.document["gate"] = gate
        self.save()

    def write_file(self, name: str, content: bytes) -> Path:
        """Write a file of the folder atomically. Raises RunFolderError."""
        path = self.path / name
        with _explained(self.path):
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, content)
        return path

    def save(self) -> None:
        """Write the document as it stands. Raises RunFolderError, ResultInvalid."""
        with _explained(self.path):
            for file in self._row_files.values():
                file.flush()
        self.document["raw"] = [file.reference() for file in self._row_files.values()]
        self.write_file(RESULT_FILE, encode(self.document))

    def in_vain(self, sentence: str) -> None:
        """The run goes to its end but measured nothing: it will not be recorded as complete."""
        self._in_vain = sentence

    def finish(self, status: Status, error: str | None = None) -> None:
        """Close the row files and write the last document.

        Raises RunFolderError if the disk refused the last rows or the document.
        """
        refusal = self._close_rows()
        if refusal is not None and error is None:
            status, error = "crashed", f"RunFolderError: {refusal}"
        (self.path / RESERVE_FILE).unlink(missing_ok=True)
        self.document["status"] = status
        self.document["error"] = error
        self.document["ended_at"] = _rfc3339(datetime.now(UTC))
        self.document["duration_s"] = time.monotonic() - self._t_start_s
        self.save()
        if refusal is not None:
            raise refusal

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.finish("crashed" if self._in_vain else "complete", self._in_vain)
            return
        status: Status = "interrupted" if isinstance(error, KeyboardInterrupt) else "crashed"
        try:
            self.finish(status, f"{type(error).__name__}: {error}")
        except RunFolderError:
            if isinstance(error, RunFolderError):
                return  # the first report of a full disk is enough
            raise

    def _close_rows(self) -> RunFolderError | None:
        refusal = None
        for file in self._row_files.values():
            try:
                with _explained(self.path):
                    file.close()
            except RunFolderError as error:
                refusal = error
        return refusal

    def _failure(self, check_id: str, index: int, failure: Failure) -> FailureRow:
        # Also without a workload (raw bytes were sent): the draws in it are enough for a replay.
        workload_path = f"failures/{check_id}-{index + 1}.json"
        self.write_file(workload_path, _json_bytes(failure.to_json(check_id)))
        return {
            "sentence": failure.sentence,
            "detail": failure.detail,
            "request_key": failure.request_key,
            "expected": failure.expected,
            "actual": failure.actual,
            "first_difference": failure.first_difference,
            "guess": failure.guess,
            "workload_path": workload_path,
            "seen": failure.seen,
            "tried": failure.tried,
        }


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn an OSError into one sentence about the folder."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RunFolderError(
            f"cannot write the run folder {folder}: {reason};"
            " free some space or name another folder with --out"
        ) from error


def _new_document(run_id: str, kind: str, command: Sequence[str], now: datetime) -> ResultDocument:
    return {
        "format": FORMAT,
        "run_id": run_id,
        "kind": kind,
        "status": "running",
        "error": None,
        "command": [_program(word) if i == 0 else word for i, word in enumerate(command)],
        "started_at": _rfc3339(now),
        "ended_at": None,
        "duration_s": None,
        "tool": tool(),
        "environment": environment(),
        "server": unknown_server(),
        "workloads": [],
        "client_health": {"valid": None, "reasons": [], "numbers": {}},
        "determinism_grade": None,
        "verdicts": [],
        "metrics": [],
        "raw": [],
    }


def _program(word: str) -> str:
    """The program's name without its folder; ``python -m harness.cli`` is isobatch."""
    name = Path(word).name
    return "isobatch" if name == "__main__.py" else name


def unknown_server() -> Server:
    """A server of which nothing is known yet."""
    return {
        "name": None,
        "version": None,
        "url": None,
        "model": None,
        "dtype": None,
        "quantisation": None,
        "flags": [],
        "hardware": None,
        "sources": {},
    }


def _verdict_row(result: CheckResult, failures: list[FailureRow]) -> VerdictRow:
    return {
        "check_id": result.check_id,
        "chapter": result.check_id.partition("-")[0],
        "verdict": result.verdict.value,
        "sentence": result.sentence,
        "reason": result.reason,
        "evidence": dict(result.evidence),
        "failures": failures,
        "requests": result.requests,
        "first_failure_requests": result.first_failure_requests,
        "duration_s": result.duration_s,
    }


def _rfc3339(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json_bytes(document: Any) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()
