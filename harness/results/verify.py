"""Holds a folder of results to what they say of themselves: schema, digests, files, quotations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.results.document import (
    RawFile,
    ResultDocument,
    ResultInvalid,
    read_result,
)
from harness.results.index import INDEX_FILE, index_differs
from harness.results.quotation import wrong_quotations
from harness.results.row_reader import count_rows
from harness.results.run_files import run_files
from workloads.workload import Workload

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in ``place`` that is not as it should be."""

    place: Path
    sentence: str

    def __str__(self) -> str:
        return f"{self.place}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Verification:
    """What was looked at, and what was wrong with it."""

    runs: int
    files: int
    quotations: int
    problems: tuple[Problem, ...]


def verify(folder: Path) -> Verification:
    """Check every run under ``folder`` and every quotation in the Markdown beside them.

    Raises FileNotFoundError when there is no such folder.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder")
    problems: list[Problem] = []
    files = 0
    runs = run_files(folder)
    for file in runs:
        found, looked_at = _verify_run(file)
        problems += found
        files += looked_at
    if not problems and index_differs(folder):
        problems.append(Problem(folder / INDEX_FILE, "is not the index of these runs"))
    quotations = 0
    for page in sorted(folder.rglob("*.md")):
        wrong, looked_at = wrong_quotations(page)
        problems += [Problem(page, sentence) for sentence in wrong]
        quotations += looked_at
    return Verification(len(runs), files, quotations, tuple(problems))


def _verify_run(file: Path) -> tuple[list[Problem], int]:
    try:
        document = read_result(file)
    except (ResultInvalid, OSError) as error:
        return [Problem(file, _without_path(error, file))], 1
    problems = [Problem(file, sentence) for sentence in _claims(file, document)]
    return problems, 1 + len(_files(document))


def _without_path(error: Exception, file: Path) -> str:
    return str(error).removeprefix(f"{file}: ").removeprefix(f"{file} ")


def _files(document: ResultDocument) -> list[str]:
    """Every file of the run folder that the document names."""
    named = [raw["path"] for raw in document["raw"]]
    named += [w["path"] for w in document["workloads"] if w["path"]]
    failures = [f for verdict in document["verdicts"] for f in verdict["failures"]]
    return named + [f["workload_path"] for f in failures if f["workload_path"]]


def _claims(file: Path, document: ResultDocument) -> Iterator[str]:
    folder = file.parent
    if document["status"] == "running":
        yield "the run never ended: its status is still running"
    missing = [name for name in _files(document) if not (folder / name).is_file()]
    yield from (f"{name} is missing" for name in missing)
    for raw in document["raw"]:
        if raw["path"] not in missing:
            yield from _rows(folder, raw, ended=document["status"] == "complete")
    for workload in document["workloads"]:
        if workload["path"] and workload["path"] not in missing:
            yield from _workload(folder / workload["path"], workload["sha256"])
    for verdict in document["verdicts"]:
        if verdict["chapter"] != verdict["check_id"].partition("-")[0]:
            yield f"{verdict['check_id']} is filed under chapter {verdict['chapter']}"
        if verdict["verdict"] == "fail" and not verdict["failures"]:
            yield f"{verdict['check_id']} failed without saying how"
        for failure in verdict["failures"]:
            if failure["workload_path"] and failure["workload_path"] not in missing:
                yield from _workload(folder / failure["workload_path"], None)


def _rows(folder: Path, raw: RawFile, *, ended: bool) -> Iterator[str]:
    """Digest, size and number of rows; a run that did not end may have rows after the digest."""
    digest, seen = hashlib.sha256(), 0
    with (folder / raw["path"]).open("rb") as file:
        while chunk := file.read(min(_CHUNK_BYTES, raw["bytes"] - seen)):
            digest.update(chunk)
            seen += len(chunk)
        longer = bool(file.read(1))
    if seen < raw["bytes"]:
        yield f"{raw['path']} has {seen} bytes, should have {raw['bytes']}"
    elif digest.hexdigest() != raw["sha256"]:
        yield f"{raw['path']} is not the file that was written: its sha256 differs"
    else:
        yield from _count(folder / raw["path"], raw)
    if longer and ended:
        yield f"{raw['path']} is longer than {raw['bytes']} bytes"


def _count(path: Path, raw: RawFile) -> Iterator[str]:
    try:
        rows = count_rows(path, raw["bytes"])
    except ValueError as error:
        yield f"{path.name} cannot be decompressed: {error}"
        return
    if rows != raw["rows"]:
        yield f"{path.name} has {rows} rows, should have {raw['rows']}"


def _workload(path: Path, sha256: str | None) -> Iterator[str]:
    try:
        workload = Workload.from_json(json.loads(path.read_bytes()))
    except (ValueError, RecursionError) as error:
        yield f"{path.name} is no workload: {error}"
        return
    if sha256 is not None and workload.sha256 != sha256:
        yield f"{path.name} is not the workload of the run: its sha256 differs"
