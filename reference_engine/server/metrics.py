"""Prometheus metrics: the engine's counters and gauges, and latencies as histograms.

Names follow vLLM's where the meaning is the same, under the prefix ``isobatch_``. Every server has
a registry of its own, so two in one process do not mix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

PREFIX: Final = "isobatch_"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_TTFT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_GAP_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


@dataclass(frozen=True, slots=True)
class EngineMetric:
    """One number of the engine's `stats`: where it is, what it is called, what it means."""

    attribute: str
    name: str
    about: str
    counter: bool = False


ENGINE_METRICS: Final = (
    EngineMetric("running", "num_requests_running", "Requests in the batch."),
    EngineMetric("waiting", "num_requests_waiting", "Requests that wait for room."),
    EngineMetric("pages_total", "kv_pages_total", "Pages of the KV cache."),
    EngineMetric("pages_free", "kv_pages_free", "Pages that hold nothing."),
    EngineMetric("pages_used", "kv_pages_used", "Pages that live requests hold."),
    EngineMetric("pages_cached", "kv_pages_cached", "Pages kept only for later prefix hits."),
    EngineMetric("preemptions_total", "num_preemptions", "Requests put back for room.", True),
    EngineMetric("prefix_queries_total", "prefix_cache_queries", "Prompt tokens looked up.", True),
    EngineMetric("prefix_hits_total", "prefix_cache_hits", "Prompt tokens found cached.", True),
    EngineMetric("prefix_evictions_total", "prefix_cache_evictions", "Cached pages reused.", True),
    EngineMetric("kv_bytes_per_token", "kv_bytes_per_token", "Keys and values of one token."),
    EngineMetric("steps_total", "engine_steps", "Batches run.", True),
    EngineMetric("budget_tokens_total", "step_budget_tokens", "Token budgets of all steps.", True),
    EngineMetric("prefill_tokens_total", "prefill_tokens", "Tokens computed in prefills.", True),
    EngineMetric("decode_tokens_total", "decode_tokens", "Tokens computed in decodes.", True),
    EngineMetric(
        "padding_tokens_dynamic_total",
        "padding_tokens_avoided",
        "Tokens that batches padded to their longest row would have added.",
        True,
    ),
    EngineMetric(
        "padding_tokens_static_total",
        "padding_tokens_avoided_static",
        "Tokens that static batches padded to their longest answer would have added.",
        True,
    ),
    EngineMetric(
        "tokens_without_cache_total",
        "tokens_without_cache",
        "Tokens that would have been computed without keys and values kept.",
        True,
    ),
    EngineMetric("prompt_tokens_total", "prompt_tokens", "Prompt tokens of requests.", True),
    EngineMetric("generated_tokens_total", "generation_tokens", "Tokens generated.", True),
    EngineMetric("requests_total", "requests_submitted", "Requests taken.", True),
    EngineMetric("finished_total", "requests_finished", "Requests answered to the end.", True),
    EngineMetric("cancelled_total", "requests_cancelled", "Requests dropped early.", True),
)


class ServerMetrics:
    """What ``/metrics`` shows. ``read_stats`` gives the engine's latest `stats`, or None."""

    def __init__(self, read_stats: Callable[[], Any], live_requests: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(read_stats, live_requests))
        self._ttft = Histogram(
            PREFIX + "time_to_first_token_seconds",
            "From the arrival of a request to its first token.",
            buckets=_TTFT_BUCKETS_S,
            registry=self._registry,
        )
        self._gap = Histogram(
            PREFIX + "inter_token_latency_seconds",
            "Between one token of a choice and its next.",
            buckets=_GAP_BUCKETS_S,
            registry=self._registry,
        )
        self._responses = Counter(
            PREFIX + "http_responses",
            "Answers by route and status; 499 is a client that hung up.",
            ("route", "status"),
            registry=self._registry,
        )

    def time_to_first_token(self, seconds: float) -> None:
        """One choice's first token after so long."""
        self._ttft.observe(seconds)

    def inter_token(self, seconds: float) -> None:
        """One gap between tokens of a choice."""
        self._gap.observe(seconds)

    def response(self, route: str, status: int) -> None:
        """One answer sent."""
        self._responses.labels(route, str(status)).inc()

    def exposition(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    def __init__(self, read_stats: Callable[[], Any], live_requests: Callable[[], int]) -> None:
        self._read_stats = read_stats
        self._live_requests = live_requests

    def collect(self) -> Iterable[Metric]:
        live = GaugeMetricFamily(PREFIX + "live_requests", "Requests that have not ended.")
        live.add_metric((), self._live_requests())
        yield live
        stats = self._read_stats()
        if stats is None:
            return
        for metric in ENGINE_METRICS:
            kind = CounterMetricFamily if metric.counter else GaugeMetricFamily
            family = kind(PREFIX + metric.name, metric.about)
            family.add_metric((), getattr(stats, metric.attribute))
            yield family
        usage = GaugeMetricFamily(PREFIX + "kv_cache_usage_perc", "Pages held, from 0 to 1.")
        usage.add_metric((), stats.pages_used / max(1, stats.pages_total))
        yield usage
