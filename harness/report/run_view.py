"""A run folder as the page sees it: the document, the rows beside it, and what they say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self, cast

from harness.report.step import Step
from harness.results.document import ResultDocument, read_result
from harness.results.request_row import RequestRow


@dataclass(frozen=True, slots=True)
class RunView:
    """One run, read back. ``token_budget`` and ``page_size`` are None where no step told them."""

    document: ResultDocument
    requests: tuple[RequestRow, ...]
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
            tuple(cast(RequestRow, row) for row in _rows(paths.get("requests"))),
            tuple(Step.from_json(row) for row in step_rows),
            first.get("token_budget"),
            first.get("page_size"),
        )

    @property
    def ttft_s(self) -> dict[str, list[float]]:
        """First-token times by definition id, in seconds."""
        seen = [r for r in self.requests if r["t_first_s"] is not None]
        return {
            "ttft.response": [_since(r, "t_due_s") for r in seen],
            "ttft.service": [_since(r, "t_sent_s") for r in seen if r["t_sent_s"] is not None],
        }

    @property
    def chunk_gap_s(self) -> dict[str, list[float]]:
        """Gaps between successive chunks of each stream, in seconds."""
        gaps = [b - a for r in self.requests for a, b in pairwise(r["chunk_times_s"])]
        return {"chunk_gap": gaps}

    @property
    def chunks(self) -> tuple[list[float], list[int]]:
        """Arrival times of all chunks in seconds, and the tokens of each (1 where untold)."""
        times = [t for r in self.requests for t in r["chunk_times_s"]]
        tokens = [1 if n is None else n for r in self.requests for n in r["chunk_tokens"]]
        return times, tokens

    @property
    def streams(self) -> list[tuple[float, float]]:
        """When each request was sent and when it ended, in seconds."""
        return [
            (r["t_sent_s"], r["t_end_s"])
            for r in self.requests
            if r["t_sent_s"] is not None and r["t_end_s"] is not None
        ]

    @property
    def labels(self) -> dict[str, str]:
        """The workload's key for each id that the server gave a request."""
        return {r["response_id"]: r["key"] for r in self.requests if r["response_id"]}


def _since(row: RequestRow, origin: str) -> float:
    return float(cast(dict[str, Any], row)["t_first_s"]) - float(cast(dict[str, Any], row)[origin])


def _rows(path: Path | None) -> Iterator[dict[str, Any]]:
    """The rows of a JSON Lines file; a last line that a crash cut short is left out."""
    if path is None:
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)
