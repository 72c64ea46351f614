"""Measure the engine on a CUDA device and write down what it took.

    python -m tests.benchmarks.engine_speed.gpu --model DIR --out DIR [--requests 64] [--dtype auto]

The price of exactness is the time of the exact engine over that of the same engine with the
library's own linear (cuBLAS, tiles chosen by the batch); attention and norms are the same in both.
Also: decode graphs and overlap switched off. Without a CUDA device it says so and exits with 2.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from reference_engine.device import DeviceRefused, choose_device
from reference_engine.engine import Engine, EngineConfig
from reference_engine.model import LoadedModel, load_model
from reference_engine.request import Request, SamplingParams
from tests.benchmarks.engine_speed.ragged import write_ragged

ROUNDS = 3
CONFIG = EngineConfig(
    page_size=256, num_pages=512, token_budget=2048, max_num_seqs=64, prefix_caching=False
)


def ways(on_cuda: bool) -> dict[str, dict[str, Any]]:
    """Ways to run the same model, by name: fields of the configuration."""
    graphs = {"decode_graphs": on_cuda}
    return {
        "exact": {**graphs, "overlap": True},
        "exact, no overlap": {**graphs, "overlap": False},
        "exact, no graphs": {"decode_graphs": False, "overlap": False},
        "library linears": {**graphs, "overlap": True},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    try:
        device = choose_device(options.device)
    except DeviceRefused as refused:
        print(f"not run: {refused}", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    workload = options.out / "workload.json"
    vocab_size = json.loads((options.model / "config.json").read_text())["vocab_size"]
    write_ragged(workload, requests=options.requests, vocab_size=vocab_size, seed=0)
    result = measure(options.model, workload, str(device), options.dtype)
    (options.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["summary"], indent=1))
    return 0


def measure(folder: Path, workload: Path, device: str, dtype: str) -> dict[str, Any]:
    """Every way, in turns, on one workload: tokens a second of each round and the ratios."""
    document = json.loads(workload.read_text(encoding="utf-8"))
    pairs = list(zip(document["prompts"], document["outputs"], strict=True))
    exact = load_model(folder, dtype=dtype, device=device)
    native = load_model(folder, dtype=dtype, device=device)
    use_library_linears(native)
    chosen = ways(exact.device.type == "cuda")
    seconds: dict[str, list[float]] = {name: [] for name in chosen}
    for _ in range(ROUNDS + 1):  # the first warms up: kernels are compiled, graphs captured
        for name, fields in chosen.items():
            model = native if name == "library linears" else exact
            seconds[name].append(_time_s(model, replace(CONFIG, **fields), pairs))
    tokens = sum(document["outputs"])
    best = {name: min(times[1:]) for name, times in seconds.items()}
    where = torch.cuda.get_device_name(exact.device) if exact.device.type == "cuda" else "cpu"
    return {
        "device": where,
        "torch": torch.__version__,
        "dtype": str(exact.dtype),
        "attention": exact.attention.name,
        "kernels": exact.kernels.name,
        "output_tokens": tokens,
        "seconds": {name: times[1:] for name, times in seconds.items()},
        "summary": {
            "tokens_per_s": {name: tokens / s for name, s in best.items()},
            "price_of_exactness": best["exact"] / best["library linears"],
        },
    }


def use_library_linears(model: LoadedModel) -> None:
    """Give every linear the library's own product: quick, and not exact."""
    from reference_engine.exact_modules import linear_weights

    for weight in linear_weights(model._model):
        if model.device.type == "cuda":
            weight.times = _library(weight._weight)  # type: ignore[method-assign]


def _library(matrix: Tensor) -> Any:
    return lambda x: F.linear(x, matrix)


def _time_s(model: LoadedModel, config: EngineConfig, pairs: list[Any]) -> float:
    engine = Engine(model, config)
    for index, (prompt, tokens) in enumerate(pairs):
        params = SamplingParams(max_tokens=tokens, ignore_eos=True)
        engine.submit(Request(str(index), tuple(prompt), params))
    began_s = time.perf_counter()
    while engine.has_work:
        engine.step()
    return time.perf_counter() - began_s


if __name__ == "__main__":
    sys.exit(main())
