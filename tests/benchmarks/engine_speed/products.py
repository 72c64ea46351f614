"""The matrix products of a step, ours beside oneDNN's, weights read from memory.

    python -m tests.benchmarks.engine_speed.products --out FILE

CPU seconds of one thread, best of several rounds; each product has copies of its weight enough
that none is still in a cache when its turn comes again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from reference_engine.huge_pages import use_huge_pages
from reference_engine.numerics import LinearWeight
from tests.benchmarks.engine_speed.compare import machine

SHAPES = ((960, 576), (576, 576), (3072, 576), (576, 1536), (49152, 576))
"""[out, in] of SmolLM2-135M: queries with keys and values, output, gate and up, down, head."""

ROWS = (1, 4, 8, 16, 24, 48, 64, 576, 1536)
COPIES_BYTES = 120_000_000
ROUNDS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    torch.set_num_threads(1)
    products = [line for shape in SHAPES for line in measure(*shape)]
    out.write_text(json.dumps({"machine": machine(), "products": products}, indent=1) + "\n")


def measure(out_features: int, width: int) -> list[dict[str, Any]]:
    """Milliseconds and GFLOP/s of both for each number of rows."""
    copies = max(2, COPIES_BYTES // (out_features * width * 4))
    matrices = [torch.randn(out_features, width) for _ in range(copies)]
    ours = [LinearWeight(matrix) for matrix in matrices]
    reorder = torch.ops.mkldnn._reorder_linear_weight
    theirs = [reorder(matrix, 16) for matrix in matrices]
    del matrices
    use_huge_pages()
    lines = []
    for rows in ROWS:
        x = torch.randn(rows, width)
        own = best_s([partial(w.times, x) for w in ours])
        dnn = best_s([partial(onednn, x, w) for w in theirs])
        operations = 2 * rows * out_features * width
        lines.append(
            {
                "out": out_features,
                "in": width,
                "rows": rows,
                "isobatch_ms": round(own * 1e3, 3),
                "onednn_ms": round(dnn * 1e3, 3),
                "isobatch_gflop_per_s": round(operations / own / 1e9, 1),
                "onednn_gflop_per_s": round(operations / dnn / 1e9, 1),
                "ratio": round(dnn / own, 2),
            }
        )
    return lines


def onednn(x: torch.Tensor, reordered: torch.Tensor) -> torch.Tensor:
    """The library's product with a weight in its own layout."""
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, reordered, None, "none", [], "")
    return product


def best_s(calls: list[Callable[[], object]]) -> float:
    """CPU seconds of one call, on average over all, in the best round."""
    rounds = []
    for _ in range(ROUNDS):
        start_s = time.thread_time()
        for call in calls:
            call()
        rounds.append((time.thread_time() - start_s) / len(calls))
    return min(rounds)


if __name__ == "__main__":
    main()
