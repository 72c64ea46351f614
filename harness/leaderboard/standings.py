"""Who stands where: runs grouped by server, verdicts by chapter, numbers beside the verdicts.

A server is what was measured: name, version, model, number format and flags. Of several
conformance runs of one server the latest word on each check counts. A performance number stands
with the conformance of the same server; a server that was never checked says so instead of looking
as if it had passed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.results.determinism_grade import determinism_grade
from harness.results.document import (
    MetricRow,
    ResultDocument,
    ResultInvalid,
    VerdictRow,
    read_result,
)
from harness.results.run_files import run_files

VERDICTS: Final = ("pass", "tie-flips", "fail", "error", "inconclusive", "unsupported")
GOOD: Final = frozenset({"pass", "tie-flips"})
BAD: Final = frozenset({"fail", "error"})


@dataclass(frozen=True, slots=True)
class Run:
    """One readable run: its document and the folder it lies in."""

    document: ResultDocument
    folder: Path

    @property
    def page(self) -> str:
        """Where the site keeps its page."""
        return f"runs/{self.document['run_id']}/index.html"


@dataclass(frozen=True, slots=True, order=True)
class ServerKey:
    """What makes two runs runs of the same server."""

    name: str
    version: str
    model: str
    dtype: str
    flags: str

    @classmethod
    def of(cls, document: ResultDocument) -> ServerKey:
        """The key of a run; an unnamed server goes by its URL."""
        server = document["server"]
        return cls(
            server["name"] or server["url"] or "unnamed server",
            server["version"] or "",
            server["model"] or "",
            server["dtype"] or "",
            " ".join(server["flags"]),
        )


@dataclass(frozen=True, slots=True)
class Cell:
    """One chapter of one server: how many verdicts of each kind, and the first bad check."""

    counts: Counter[str]
    link: str

    @property
    def tone(self) -> str:
        """good, bad or unsure; the symbol beside it says the same without colour."""
        if any(self.counts[v] for v in BAD):
            return "bad"
        return "good" if any(self.counts[v] for v in GOOD) else "unsure"


@dataclass(slots=True)
class ServerRow:
    """One server in the conformance matrix; ``run`` is its latest conformance run."""

    key: ServerKey
    run: Run
    older: list[Run] = field(default_factory=list)

    @property
    def judged(self) -> dict[str, tuple[VerdictRow, Run]]:
        """Of each check the latest verdict, and the run that has it."""
        latest: dict[str, tuple[VerdictRow, Run]] = {}
        for run in (self.run, *self.older):
            for verdict in run.document["verdicts"]:
                latest.setdefault(verdict["check_id"], (verdict, run))
        return latest

    @property
    def verdicts(self) -> list[VerdictRow]:
        """The latest verdict of each check."""
        return [verdict for verdict, _ in self.judged.values()]

    @property
    def cells(self) -> dict[str, Cell]:
        """The chapters."""
        return _cells(list(self.judged.values()))

    @property
    def failures(self) -> list[VerdictRow]:
        """The checks that failed or broke."""
        return [v for v in self.verdicts if v["verdict"] in BAD]

    @property
    def grade(self) -> str | None:
        """The determinism grade that the verdicts support."""
        return determinism_grade(self.verdicts)

    @property
    def passed(self) -> int:
        """Checks that passed."""
        return sum(v["verdict"] in GOOD for v in self.verdicts)

    def link(self, check_id: str) -> str:
        """Where the site shows the latest verdict of that check."""
        return f"{self.judged[check_id][1].page}#{check_id}"


@dataclass(frozen=True, slots=True)
class PerformanceRow:
    """One measured run. Rates are tokens a second, times seconds; None is undefined.

    ``conformance`` is the row of the same server in the matrix, None if it was never checked.
    """

    key: ServerKey
    run: Run
    workload: str
    workload_sha256: str
    output_rate: float | None
    stream_rate: float | None
    ttft_s: float | None
    gap_p99_s: float | None
    conformance: ServerRow | None

    @property
    def standing(self) -> str:
        """passed, failed or unchecked."""
        if self.conformance is None:
            return "unchecked"
        return "failed" if self.conformance.failures else "passed"


@dataclass(frozen=True, slots=True)
class Standings:
    """Everything the site shows. ``refused`` are files that are no results, with the reason."""

    chapters: tuple[str, ...]
    servers: tuple[ServerRow, ...]
    performance: tuple[PerformanceRow, ...]
    runs: tuple[Run, ...]
    refused: tuple[str, ...]


def read_standings(folder: Path) -> Standings:
    """Read every run under ``folder``. Raises FileNotFoundError when there is no such folder."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder")
    runs: dict[str, Run] = {}
    refused: list[str] = []
    for file in run_files(folder):
        try:
            run = Run(read_result(file), file.parent)
        except (ResultInvalid, OSError) as error:
            refused.append(str(error))
            continue
        if runs.setdefault(run.document["run_id"], run) is not run:
            refused.append(f"{file}: another run has the id {run.document['run_id']}")
    ordered = sorted(runs.values(), key=lambda run: run.document["started_at"], reverse=True)
    servers = _servers(ordered)
    chapters = sorted({chapter for row in servers for chapter in row.cells})
    return Standings(
        tuple(chapters),
        tuple(servers),
        tuple(_performance(ordered, {row.key: row for row in servers})),
        tuple(ordered),
        tuple(refused),
    )


def _servers(ordered: Sequence[Run]) -> list[ServerRow]:
    """Rows, latest run first within each server, servers by what they pass."""
    rows: dict[ServerKey, ServerRow] = {}
    for run in ordered:
        if not run.document["verdicts"]:
            continue
        key = ServerKey.of(run.document)
        if key in rows:
            rows[key].older.append(run)
        else:
            rows[key] = ServerRow(key, run)
    return sorted(rows.values(), key=lambda row: (len(row.failures), -row.passed, row.key))


def _cells(judged: Sequence[tuple[VerdictRow, Run]]) -> dict[str, Cell]:
    by_chapter: dict[str, list[tuple[VerdictRow, Run]]] = {}
    for verdict, run in judged:
        by_chapter.setdefault(verdict["chapter"], []).append((verdict, run))
    cells = {}
    for chapter, rows in by_chapter.items():
        first, run = next((row for row in rows if row[0]["verdict"] in BAD), rows[0])
        counts = Counter(verdict["verdict"] for verdict, _ in rows)
        cells[chapter] = Cell(counts, f"{run.page}#{first['check_id']}")
    return cells


def _performance(
    ordered: Sequence[Run], checked: dict[ServerKey, ServerRow]
) -> list[PerformanceRow]:
    rows = []
    for run in ordered:
        metrics = _best_window(run.document["metrics"])
        if _value(metrics, "throughput.output", "value") is None:
            continue
        workload = run.document["workloads"][-1] if run.document["workloads"] else None
        tpot_s = _value(metrics, "tpot", "p50")
        key = ServerKey.of(run.document)
        rows.append(
            PerformanceRow(
                key,
                run,
                workload["name"] if workload else "",
                workload["sha256"] if workload else "",
                _value(metrics, "throughput.output", "value"),
                1 / tpot_s if tpot_s else None,
                _value(metrics, "ttft.response", "p50"),
                _value(metrics, "chunk_gap", "p99"),
                checked.get(key),
            )
        )
    return sorted(rows, key=lambda row: -(row.output_rate or 0.0))


def _best_window(rows: Sequence[MetricRow]) -> list[MetricRow]:
    window = "steady" if any(row["window"] == "steady" for row in rows) else "whole"
    return [row for row in rows if row["window"] == window]


def _value(rows: Sequence[MetricRow], metric_id: str, statistic: str) -> float | None:
    return next(
        (r["value"] for r in rows if r["id"] == metric_id and r["statistic"] == statistic), None
    )
