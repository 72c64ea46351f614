"""The metrics dialects of known servers, read as the few gauges that the checks speak of."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Gauge(StrEnum):
    """A quantity that servers show under names of their own."""

    RUNNING = "running"
    WAITING = "waiting"
    CACHE_USE = "cache_use"
    PREEMPTIONS = "preemptions"
    PREFIX_HITS = "prefix_hits"


_DIALECTS: Final[Mapping[str, Mapping[Gauge, tuple[str, ...]]]] = {
    "isobatch": {
        Gauge.RUNNING: ("isobatch_num_requests_running",),
        Gauge.WAITING: ("isobatch_num_requests_waiting",),
        Gauge.CACHE_USE: ("isobatch_kv_pages_used",),
        Gauge.PREEMPTIONS: ("isobatch_num_preemptions_total",),
        Gauge.PREFIX_HITS: ("isobatch_prefix_cache_hits_total",),
    },
    "vllm": {
        Gauge.RUNNING: ("vllm:num_requests_running",),
        Gauge.WAITING: ("vllm:num_requests_waiting",),
        Gauge.CACHE_USE: ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        Gauge.PREEMPTIONS: ("vllm:num_preemptions_total", "vllm:num_preemptions"),
        Gauge.PREFIX_HITS: ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits"),
    },
    "sglang": {
        Gauge.RUNNING: ("sglang:num_running_reqs",),
        Gauge.WAITING: ("sglang:num_queue_reqs",),
        Gauge.CACHE_USE: ("sglang:token_usage",),
        Gauge.PREEMPTIONS: ("sglang:num_retracted_requests_total",),
        Gauge.PREFIX_HITS: ("sglang:cached_tokens_total",),
    },
    "tgi": {
        Gauge.RUNNING: ("tgi_batch_current_size",),
        Gauge.WAITING: ("tgi_queue_size",),
    },
    "llama.cpp": {
        Gauge.RUNNING: ("llamacpp:requests_processing",),
        Gauge.WAITING: ("llamacpp:requests_deferred",),
        Gauge.CACHE_USE: ("llamacpp:kv_cache_usage_ratio",),
    },
}


def dialect_of(metrics: Mapping[str, float]) -> str | None:
    """The dialect whose running gauge is there, None if none is."""
    for dialect, names in _DIALECTS.items():
        if any(name in metrics for name in names[Gauge.RUNNING]):
            return dialect
    return None


def read_gauges(metrics: Mapping[str, float]) -> dict[Gauge, float]:
    """The gauges that the page shows, in whatever dialect; those it does not show are left out."""
    dialect = dialect_of(metrics)
    if dialect is None:
        return {}
    found: dict[Gauge, float] = {}
    for gauge, names in _DIALECTS[dialect].items():
        for name in names:
            if name in metrics:
                found[gauge] = metrics[name]
                break
    return found
