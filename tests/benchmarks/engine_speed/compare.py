"""Run every contender on one workload, in turns, and write down what each took.

    python -m tests.benchmarks.engine_speed.compare --model DIR --requests 24 --out DIR \\
        [--vllm-python FILE] [--rounds 2] [--only NAME ...]

Contenders run one at a time, each in a process of its own with one thread; round after round, so
that a machine that changes its speed does so for all. CPU seconds are those of the whole process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks.engine_speed.contender import CONTENDERS
from tests.benchmarks.engine_speed.ragged import write_ragged

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
}
TIMEOUT_S = 3600.0


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    workload = options.out / "workload.json"
    vocab_size = json.loads((options.model / "config.json").read_text())["vocab_size"]
    write_ragged(workload, requests=options.requests, vocab_size=vocab_size, seed=options.seed)
    names = [n for n in options.only or CONTENDERS if options.vllm_python or "vllm" not in n]
    runs: list[dict[str, Any]] = []
    for round_number in range(options.rounds):
        for name in names if round_number % 2 == 0 else reversed(names):
            python = options.vllm_python if name.startswith("vllm") else Path(sys.executable)
            runs.append(
                run_contender(name, python, options.model, workload) | {"round": round_number}
            )
            print(json.dumps(runs[-1]), flush=True)
            result = {"machine": machine(), "workload": describe(workload), "runs": runs}
            result["summary"] = summary(runs)
            (options.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")


def run_contender(name: str, python: Path, model: Path, workload: Path) -> dict[str, Any]:
    """The JSON line of one contender, or its failure: a contender that cannot run is no zero."""
    root = Path(__file__).parents[3]
    command = [str(python), str(Path(__file__).with_name("contender.py")), name]
    done = subprocess.run(
        [*command, str(model.resolve()), str(workload.resolve())],
        env=os.environ | ONE_THREAD | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"contender": name, "failed": last[:300]}
    measured: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return measured


def describe(workload: Path) -> dict[str, int]:
    """The workload's size."""
    document = json.loads(workload.read_text(encoding="utf-8"))
    prompts, outputs = document["prompts"], document["outputs"]
    return {
        "requests": len(prompts),
        "prompt_tokens": sum(map(len, prompts)),
        "longest_prompt_tokens": max(map(len, prompts)),
        "output_tokens": sum(outputs),
        "longest_output_tokens": max(outputs),
    }


def summary(runs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Medians over the rounds of each contender, and its ratio to this project's engine."""
    rows: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(run["contender"] for run in runs):
        good = [run for run in runs if run["contender"] == name and "failed" not in run]
        if good:
            rows[name] = {
                "rounds": len(good),
                "tokens_per_s": statistics.median(r["output_tokens"] / r["wall_s"] for r in good),
                "tokens_per_cpu_s": statistics.median(
                    r["output_tokens"] / r["cpu_s"] for r in good
                ),
                "peak_bytes": statistics.median(r["peak_bytes"] for r in good),
                "peak_run_bytes": statistics.median(r["peak_run_bytes"] for r in good),
            }
    ours = rows.get("isobatch")
    for row in rows.values() if ours else ():
        for rate in ("tokens_per_s", "tokens_per_cpu_s"):
            row[f"isobatch_over_this_{rate}"] = ours[rate] / row[rate] if ours else 0.0
    return rows


def machine() -> dict[str, Any]:
    """What it ran on, and how busy that was."""
    model = [
        x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")
    ]
    return {
        "processor": model[0].split(":")[1].strip() if model else platform.processor(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--vllm-python", type=Path)
    parser.add_argument("--only", nargs="*", choices=list(CONTENDERS))
    return parser.parse_args()


if __name__ == "__main__":
    main()
