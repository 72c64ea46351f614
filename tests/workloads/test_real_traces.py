"""The published trace files, read whole, where they are: in the folder that ISOBATCH_TRACES names,
else in ../shared/data/traces beside the checkout. Skipped elsewhere; the formats alone are in
test_trace.py.
"""

from __future__ import annotations

import gzip
import os
from itertools import pairwise
from pathlib import Path

import pytest

from workloads.trace_files import read_trace

BESIDE = Path(__file__).parents[2].parent / "shared" / "data" / "traces"
FOLDER = Path(os.environ.get("ISOBATCH_TRACES", BESIDE))
FILES = sorted(f for f in FOLDER.glob("*") if {".csv", ".jsonl"} & set(f.suffixes))

# Requests, mean prompt, mean output, seconds from first to last, counted from the source files.
KNOWN = {
    "azure-llm-2023-conv.csv.gz": (19_366, 1155, 211, 3502),
    "azure-llm-2023-code.csv.gz": (8_819, 2048, 27.9, 3436),
    "mooncake-conversation.jsonl.gz": (12_031, 12_035, 343, None),
    "mooncake-synthetic.jsonl.gz": (3_993, 15_326, 149, None),
}


@pytest.mark.skipif(not FILES, reason="no trace files; name their folder in ISOBATCH_TRACES")
@pytest.mark.parametrize("path", FILES, ids=lambda f: f.name)
def test_a_published_trace_is_read_whole(path: Path):
    rows = read_trace(path).rows
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        lines = sum(1 for line in file if line.strip()) - (".csv" in path.suffixes)
    failed = lines - len(rows)  # BurstGPT alone has requests without an answer
    assert 0 <= failed <= (lines // 4 if "burst" in path.name.lower() else 0)
    assert rows[0].arrival_s == 0.0
    assert all(a.arrival_s <= b.arrival_s for a, b in pairwise(rows))
    if path.name not in KNOWN:
        return
    count, prompt, output, seconds = KNOWN[path.name]
    assert len(rows) == count
    assert sum(r.prompt_tokens for r in rows) / count == pytest.approx(prompt, rel=0.001)
    assert sum(r.output_tokens for r in rows) / count == pytest.approx(output, rel=0.005)
    assert seconds is None or rows[-1].arrival_s == pytest.approx(seconds, abs=1.0)
