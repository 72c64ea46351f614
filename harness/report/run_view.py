"""A run folder as the page sees it: the document, the rows beside it, and what they say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from harness.metrics.request_row import from_row
from harness.metrics.samples import samples
from harness.report.step import Step
from harness.results.document import ResultDocument, read_result
from harness.results.row_reader import read_rows
from harness.transcript import RequestTranscript


@dataclass(frozen=True, slots=True)
class RunView:
    """One run, read back. ``token_budget`` and ``page_size`` are None where no step told them."""

    document: ResultDocument
    requests: tuple[RequestTranscript, ...]
    steps: tuple[Step, ...]
    token_budget: int | None
    page_size: int | None

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a run folder. Raises ResultInvalid, OSError, ValueError for rows that are none."""
        document = read_result(folder)
        paths = {raw["name"]: folder / raw["path"] for raw in document["raw"]}
        step_rows = list(_rows(paths.get("steps")))
        first = step_rows[0] if step_rows else {}
        return cls(
            document,
            tuple(from_row(row) for row in _rows(paths.get("requests"))),
            tuple(Step.from_json(row) for row in step_rows),
            first.get("token_budget"),
            first.get("page_size"),
        )

    @property
    def ttft_s(self) -> dict[str, list[float]]:
        """First-token times by definition id, in seconds."""
        found = samples(self.requests)
        return {name: found[name] for name in ("ttft.response", "ttft.service") if found[name]}

    @property
    def chunk_gap_s(self) -> dict[str, list[float]]:
        """Gaps between successive chunks of each stream, in seconds."""
        gaps = samples(self.requests)["chunk_gap"]
        return {"chunk_gap": gaps} if gaps else {}

    @property
    def chunks(self) -> list[tuple[float, int]]:
        """Every chunk: when it arrived, in seconds, and how many tokens it had (1 where untold)."""
        return [
            (chunk.t_s, 1 if chunk.tokens is None else chunk.tokens)
            for request in self.requests
            for choice in request.choices.values()
            for chunk in choice.chunks
        ]

    @property
    def streams(self) -> list[tuple[float, float]]:
        """When each request was sent and when it ended, in seconds."""
        return [
            (r.t_sent_s, r.t_end_s)
            for r in self.requests
            if r.t_sent_s is not None and r.t_end_s is not None
        ]

    @property
    def labels(self) -> dict[str, str]:
        """The workload's key for each id that the server gave a request."""
        return {r.response_id: r.key for r in self.requests if r.response_id}


def _rows(path: Path | None) -> Iterator[dict[str, Any]]:
    """The rows of a file; a last one that a crash cut short is left out."""
    return iter(()) if path is None else (row for _, row in read_rows(path))
