"""Metrics that compare two runs: what raggedness costs, and what a long prompt does to others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from harness.metrics.quantile import quantile
from harness.metrics.summary import RowMaker
from harness.metrics.window import flow, whole_window
from harness.results.document import MetricRow
from harness.transcript import RequestTranscript
from workloads.prompts import Prompts
from workloads.workload import Workload, WorkloadRequest


def uniform_twin(ragged: Workload, prompts: Prompts, seed: int) -> Workload:
    """As many requests with as many tokens, every one of the mean lengths, in the same loop."""
    count = len(ragged.requests)
    prompt_tokens = round(fmean(_prompt_tokens(r) for r in ragged.requests))
    output_tokens = round(fmean(int(r.params["max_tokens"]) for r in ragged.requests))
    requests = []
    for number, request in enumerate(ragged.requests):
        content = prompts.prompt(seed, count + number, prompt_tokens)
        requests.append(
            replace(
                request,
                prompt_ids=content if isinstance(content, tuple) else None,
                prompt_text=content if isinstance(content, str) else None,
                params={**request.params, "max_tokens": output_tokens},
            )
        )
    return replace(ragged, requests=tuple(requests), origin=f"{ragged.origin}, made uniform")


def ragged_efficiency(
    ragged: Sequence[RequestTranscript], uniform: Sequence[RequestTranscript]
) -> MetricRow:
    """Output tokens/s of the ragged run over those of the uniform one; 1 if padding costs nothing.

    None where a run has no throughput.
    """
    rates = [_output_rate(run) for run in (ragged, uniform)]
    value = None
    if rates[0] is not None and rates[1]:
        value = rates[0] / rates[1]
    return RowMaker().row("ragged_efficiency", "value", value, len(ragged) + len(uniform))


def prefill_interference(
    with_long: Sequence[RequestTranscript],
    without: Sequence[RequestTranscript],
    long_keys: Iterable[str],
) -> MetricRow:
    """p99 gap of running streams while a long prompt prefills, over their p99 gap without any.

    A long prompt prefills from when it is sent to its first token. A gap counts if it overlaps
    that. None where either side has fewer gaps than a p99 needs.
    """
    keys = set(long_keys)
    spans = [
        (r.t_sent_s, r.t_first_s)
        for r in with_long
        if r.key in keys and r.t_sent_s is not None and r.t_first_s is not None
    ]
    during = sorted(
        end - start
        for start, end in _gaps(r for r in with_long if r.key not in keys)
        if any(start < t_first and end > t_sent for t_sent, t_first in spans)
    )
    alone = sorted(end - start for start, end in _gaps(without))
    busy, calm = quantile(during, 0.99), quantile(alone, 0.99)
    value = busy.value / calm.value if busy and calm and calm.value > 0 else None
    note = f"{len(spans)} long prompts, {len(during)} gaps while they prefilled"
    return RowMaker().row("prefill_interference", "p99", value, len(during), note=note)


def _gaps(requests: Iterable[RequestTranscript]) -> Iterable[tuple[float, float]]:
    for request in requests:
        for choice in request.choices.values():
            for earlier, later in pairwise(choice.chunks):
                yield earlier.t_s, later.t_s


def _output_rate(requests: Sequence[RequestTranscript]) -> float | None:
    window = whole_window(requests)
    if window is None:
        return None
    output = flow(requests, window).output_tokens
    return None if output is None else output / window.length_s


def _prompt_tokens(request: WorkloadRequest) -> int:
    if request.prompt_ids is not None:
        return len(request.prompt_ids)
    return len((request.prompt_text or "").split())
