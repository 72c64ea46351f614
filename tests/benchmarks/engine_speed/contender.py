"""One contender, in a process of its own: load the model, warm up, run the workload, tell the cost.

    python contender.py NAME MODEL_DIR WORKLOAD.json

prints one JSON object on its last line. It imports nothing of this project except in the
contenders of this project, so that the Python of vLLM's own environment can run it.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[[list[list[int]], list[int]], int]
"""Serves prompts with their numbers of output tokens; returns how many tokens were wanted."""

TOKEN_BUDGET = 2048
"""Tokens a step computes at most, for all that have such a budget (vLLM's default on a CPU)."""

WARM_UP = ([[7] * 40, [9] * 12], [4, 4])


def isobatch(model_dir: str) -> Run:
    """The engine in its only mode: exact."""
    from reference_engine.engine import Engine, EngineConfig
    from reference_engine.model import load_model
    from reference_engine.request import Request, SamplingParams

    model = load_model(model_dir)

    def run(prompts: list[list[int]], outputs: list[int]) -> int:
        engine = Engine(model, EngineConfig(token_budget=TOKEN_BUDGET, prefix_caching=False))
        for index, (prompt, tokens) in enumerate(zip(prompts, outputs, strict=True)):
            params = SamplingParams(max_tokens=tokens, ignore_eos=True)
            engine.submit(Request(str(index), tuple(prompt), params))
        generated = 0
        while engine.has_work:
            generated += sum(event.token_id is not None for event in engine.step())
        return generated

    return run


def isobatch_native(model_dir: str) -> Run:
    """The same engine without exactness: torch's own linear on any rows, SDPA a sequence."""
    import torch
    import torch.nn.functional as F

    from reference_engine import model, numerics
    from tests.benchmarks.engine_speed.sdpa import SdpaAttention

    class NativeWeight:
        rows_are_alone = True

        def __init__(self, weight: torch.Tensor) -> None:
            self.out_features, self.in_features = weight.shape
            self._weight = weight.detach()

        def times(self, x: torch.Tensor) -> torch.Tensor:
            return F.linear(x, self._weight)

    numerics.LinearWeight = NativeWeight  # type: ignore[assignment,misc]
    _no_padding()
    model.choose_backend = lambda device, dtype: SdpaAttention()
    return isobatch(model_dir)


def isobatch_unpadded(model_dir: str) -> Run:
    """The same engine with its own fast kernels but no row tile: what the padding alone costs."""
    _no_padding()
    return isobatch(model_dir)


def _no_padding() -> None:
    from reference_engine import model, numerics

    numerics.ROW_TILE = model.ROW_TILE = 1  # type: ignore[misc,attr-defined]


def _transformers_model(model_dir: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()


def transformers_one_at_a_time(model_dir: str) -> Run:
    """`generate`, one request after another."""
    import torch

    model = _transformers_model(model_dir)

    def run(prompts: list[list[int]], outputs: list[int]) -> int:
        for prompt, tokens in zip(prompts, outputs, strict=True):
            model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                do_sample=False,
                pad_token_id=0,
            )
        return sum(outputs)

    return run


def transformers_static(model_dir: str) -> Run:
    """`generate` on one batch, padded on the left, until the longest answer is done."""
    import torch

    model = _transformers_model(model_dir)

    def run(prompts: list[list[int]], outputs: list[int]) -> int:
        width = max(len(p) for p in prompts)
        ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        tokens = max(outputs)
        model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
        )
        return sum(outputs)

    return run


def transformers_generate_batch(model_dir: str) -> Run:
    """The continuous batching of transformers, each request with its own number of tokens."""
    from transformers import ContinuousBatchingConfig, GenerationConfig

    model = _transformers_model(model_dir)
    config = ContinuousBatchingConfig(num_blocks=256, max_batch_tokens=TOKEN_BUDGET)

    def run(prompts: list[list[int]], outputs: list[int]) -> int:
        manager = model.init_continuous_batching(
            generation_config=GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0),
            continuous_batching_config=config,
        )
        manager.start()
        try:
            for prompt, tokens in zip(prompts, outputs, strict=True):
                manager.add_request(prompt, max_new_tokens=tokens)
            generated = 0
            for _ in prompts:
                result = manager.get_result(timeout=1800)
                generated += len(result.generated_tokens)
        finally:
            manager.stop(block=True)
        return generated

    return run


def _vllm(model_dir: str, *, eager: bool) -> Run:
    from vllm import LLM, SamplingParams

    llm = LLM(
        model_dir,
        dtype="float32",
        max_model_len=2048,
        max_num_seqs=64,
        max_num_batched_tokens=TOKEN_BUDGET,
        enforce_eager=eager,
        enable_prefix_caching=False,
    )

    def run(prompts: list[list[int]], outputs: list[int]) -> int:
        params = [
            SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
            for tokens in outputs
        ]
        answers = llm.generate([{"prompt_token_ids": p} for p in prompts], params, use_tqdm=False)
        return sum(len(answer.outputs[0].token_ids) for answer in answers)

    return run


def vllm_eager(model_dir: str) -> Run:
    """vLLM's CPU build with ``enforce_eager``."""
    return _vllm(model_dir, eager=True)


def vllm_compiled(model_dir: str) -> Run:
    """vLLM's CPU build as it is by default, the model compiled."""
    return _vllm(model_dir, eager=False)


CONTENDERS: dict[str, Callable[[str], Run]] = {
    "isobatch": isobatch,
    "isobatch-native": isobatch_native,
    "isobatch-unpadded": isobatch_unpadded,
    "transformers-one-at-a-time": transformers_one_at_a_time,
    "transformers-static": transformers_static,
    "transformers-generate-batch": transformers_generate_batch,
    "vllm-eager": vllm_eager,
    "vllm-compiled": vllm_compiled,
}


def main() -> None:
    name, model_dir, workload_path = sys.argv[1:]
    workload = json.loads(Path(workload_path).read_text(encoding="utf-8"))
    import torch

    torch.set_num_threads(1)
    run = CONTENDERS[name](model_dir)
    run(*WARM_UP)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak begins anew
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    tokens = run(workload["prompts"], workload["outputs"])
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    result = {
        "contender": name,
        "output_tokens": tokens,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "peak_run_bytes": _peak_run_bytes(),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    print(json.dumps(result), flush=True)


def _peak_run_bytes() -> int:
    """The largest resident set since the peak was cleared (Linux)."""
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    [line] = [line for line in status if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
