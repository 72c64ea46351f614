"""Readers of public trace formats; the files themselves stay where the user has them.

| format | known by | rows |
|---|---|---|
| Azure LLM inference traces 2023 and 2024 | ``TIMESTAMP,ContextTokens,GeneratedTokens`` | CSV |
| BurstGPT | ``Timestamp,Model,Request tokens,Response tokens`` and more | CSV |
| Mooncake | ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids`` | JSONL |
| our own | ``arrival_s``, ``prompt_tokens``, ``output_tokens``, ``block_ids`` | JSONL |

Files that end in .gz are read as they are. Rows without output (failed requests in BurstGPT) are
left out, as they were never served.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from workloads.trace import Trace, TraceRow, from_rows

_Row = Mapping[str, Any]


def read_trace(path: Path, limit: int | None = None) -> Trace:
    """Read a trace, its format told by its first line; at most ``limit`` requests.

    Raises ValueError with one sentence that names the file and the line.
    """
    try:
        with _open(path) as file:
            first = file.readline()
            reader = _reader(first)
            if reader is None:
                raise ValueError(f"{path}: no known trace format; its first line is {first[:80]!r}")
            lines = itertools.chain([first], file)
            rows = list(itertools.islice(_rows(path, lines, reader), limit))
    except OSError as error:  # a damaged .gz too; the text of others would name the path again
        raise ValueError(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}"
        ) from None
    except (EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    return from_rows(path.name, rows)


def write_trace(trace: Trace, path: Path) -> None:
    """Write our own format."""
    with path.open("w", encoding="utf-8") as file:
        for row in trace.rows:
            document: dict[str, Any] = {
                "arrival_s": row.arrival_s,
                "prompt_tokens": row.prompt_tokens,
                "output_tokens": row.output_tokens,
            }
            if row.block_ids:
                document["block_ids"] = row.block_ids
            file.write(json.dumps(document) + "\n")


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return io.TextIOWrapper(gzip.open(path), encoding="utf-8")
    return path.open(encoding="utf-8")


def _reader(first_line: str) -> Callable[[_Row], TraceRow | None] | None:
    columns = {name.strip() for name in first_line.split(",")}
    if {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= columns:
        return _azure_row
    if {"Timestamp", "Request tokens", "Response tokens"} <= columns:
        return _burstgpt_row
    try:
        document = json.loads(first_line)
    except json.JSONDecodeError:
        return None
    if not isinstance(document, dict):
        return None
    if {"timestamp", "input_length", "output_length"} <= document.keys():
        return _mooncake_row
    return _own_row if {"arrival_s", "prompt_tokens"} <= document.keys() else None


def _rows(
    path: Path, lines: Iterator[str], reader: Callable[[_Row], TraceRow | None]
) -> Iterator[TraceRow]:
    is_csv = reader in (_azure_row, _burstgpt_row)
    source: Iterator[_Row] = csv.DictReader(lines) if is_csv else _json_lines(lines)
    line = int(is_csv)
    try:
        for fields in source:
            line += 1
            row = reader(fields)
            if row is not None and row.prompt_tokens > 0 and row.output_tokens > 0:
                yield row
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: after line {line}: {error}") from None


def _json_lines(lines: Iterator[str]) -> Iterator[_Row]:
    return (json.loads(line) for line in lines if line.strip())


def _azure_row(fields: _Row) -> TraceRow:
    # The 2024 files give an offset from UTC, the 2023 ones seven digits of a second.
    stamp, _, _ = str(fields["TIMESTAMP"]).strip().partition("+")
    whole, _, fraction = stamp.partition(".")
    seconds = datetime.fromisoformat(whole + "+00:00").timestamp()
    return TraceRow(
        seconds + float(f"0.{fraction or 0}"),
        int(fields["ContextTokens"]),
        int(fields["GeneratedTokens"]),
    )


def _burstgpt_row(fields: _Row) -> TraceRow:
    return TraceRow(
        float(fields["Timestamp"]),
        int(float(fields["Request tokens"])),
        int(float(fields["Response tokens"])),
    )


def _mooncake_row(fields: _Row) -> TraceRow:
    return TraceRow(
        float(fields["timestamp"]) / 1000.0,
        int(fields["input_length"]),
        int(fields["output_length"]),
        tuple(int(i) for i in fields.get("hash_ids", ())),
    )


def _own_row(fields: _Row) -> TraceRow:
    return TraceRow(
        float(fields["arrival_s"]),
        int(fields["prompt_tokens"]),
        int(fields["output_tokens"]),
        tuple(int(i) for i in fields.get("block_ids", ())),
    )
