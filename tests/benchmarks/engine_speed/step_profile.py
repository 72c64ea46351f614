"""Where the engine's seconds go: matrix products by the rows of a call, attention, the cache, rest.

    python -m tests.benchmarks.engine_speed.step_profile --model DIR --out FILE [--requests 24]

The workload of `compare`, one thread. Products and loops are timed around their calls, so the
whole is a little slower than without.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from reference_engine import cpu_kernels
from reference_engine.numerics import LinearWeight
from tests.benchmarks.engine_speed.compare import machine
from tests.benchmarks.engine_speed.contender import WARM_UP, isobatch
from tests.benchmarks.engine_speed.ragged import write_ragged

ROWS = (3, 11, 24)
"""Upper ends of the classes of rows; the last class is open."""


def main() -> None:
    """Run the workload once to warm up and once measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--requests", type=int, default=24)
    options = parser.parse_args()
    torch.set_num_threads(1)
    vocab_size = json.loads((options.model / "config.json").read_text())["vocab_size"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "workload.json"
        write_ragged(path, requests=options.requests, vocab_size=vocab_size, seed=1)
        workload = json.loads(path.read_text())
    run = isobatch(str(options.model))
    run(*WARM_UP)
    found = profile(lambda: run(workload["prompts"], workload["outputs"]))
    document = {"machine": machine(), "requests": options.requests, **found}
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(found))


def profile(run: Callable[[], int]) -> dict[str, Any]:
    """Seconds of one run by part; of the products also GFLOP/s, by the rows of a call."""
    seconds: Counter[str] = Counter()
    operations: Counter[str] = Counter()
    times, attend, store = LinearWeight.times, cpu_kernels.attend_rows, cpu_kernels.store_rows

    def timed_product(self: LinearWeight, x: torch.Tensor) -> torch.Tensor:
        began_s = time.perf_counter()
        out = times(self, x)
        rows = next((f"products, to {n} rows" for n in ROWS if len(x) <= n), "products, more rows")
        seconds[rows] += time.perf_counter() - began_s
        operations[rows] += 2 * len(x) * self.out_features * self.in_features
        return out

    def timed(name: str, loop: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            began_s = time.perf_counter()
            loop(*arguments)
            seconds[name] += time.perf_counter() - began_s

        return call

    LinearWeight.times = timed_product  # type: ignore[method-assign]
    cpu_kernels.attend_rows = timed("attention", attend)
    cpu_kernels.store_rows = timed("writing to the cache", store)
    began_s = time.perf_counter()
    try:
        tokens = run()
    finally:
        whole_s = time.perf_counter() - began_s
        LinearWeight.times = times  # type: ignore[method-assign]
        cpu_kernels.attend_rows, cpu_kernels.store_rows = attend, store
    return {
        "output_tokens": tokens,
        "whole_s": round(whole_s, 2),
        "parts_s": {name: round(s, 2) for name, s in sorted(seconds.items())},
        "rest_s": round(whole_s - sum(seconds.values()), 2),
        "gflop_per_s": {n: round(ops / seconds[n] / 1e9, 1) for n, ops in operations.items()},
    }


if __name__ == "__main__":
    main()
