"""From a transcript to the metric rows of a result. Undefined is None, never 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from harness.metrics.definitions import DEFINITIONS
from harness.metrics.ledger import TokenLedger
from harness.metrics.quantile import CONFIDENCE, quantile, samples_needed
from harness.metrics.samples import samples
from harness.metrics.slo import Slo, is_good
from harness.metrics.window import Window, flow, steady_window, whole_window
from harness.results.document import MetricRow
from harness.transcript import Ending, RequestTranscript

QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


def metric_rows(
    requests: Iterable[RequestTranscript],
    *,
    objectives: tuple[Slo, ...] = (),
    workload_sha256: str | None = None,
) -> list[MetricRow]:
    """All metrics of one run, over the steady window and over the whole run."""
    rows_of = RowMaker(workload_sha256)
    everything = list(requests)
    rows: list[MetricRow] = []
    for window in (steady_window(everything), whole_window(everything)):
        if window is not None:
            rows += _window_rows(rows_of, everything, window)
    rows += _count_rows(rows_of, everything)
    rows += _plan_rows(rows_of, everything)
    if objectives:
        rows.append(_goodput_row(rows_of, everything, objectives))
    return rows


class RowMaker:
    """Makes rows that share a workload digest."""

    def __init__(self, workload_sha256: str | None = None) -> None:
        self._workload_sha256 = workload_sha256

    def row(
        self,
        metric_id: str,
        statistic: str,
        value: float | None,
        count: int,
        *,
        window: Window | None = None,
        bounds: tuple[float, float] | None = None,
        note: str | None = None,
    ) -> MetricRow:
        """One row; the unit is the definition's, the confidence that of the bounds."""
        name: Literal["steady", "whole"] | None = None
        if window is not None:
            name = "steady" if window.name == "steady" else "whole"
        row: MetricRow = {
            "id": metric_id,
            "statistic": statistic,
            "unit": DEFINITIONS[metric_id].unit,
            "value": value,
            "count": count,
            "low": bounds[0] if bounds else None,
            "high": bounds[1] if bounds else None,
            "confidence": CONFIDENCE if bounds else None,
            "window": name,
            "workload_sha256": self._workload_sha256,
        }
        if note is not None:
            row["note"] = note
        return row

    def distribution(
        self, metric_id: str, values: Iterable[float], window: Window | None
    ) -> list[MetricRow]:
        """Mean, minimum, quantiles and maximum; a quantile is None where there are too few."""
        ordered = sorted(values)
        n = len(ordered)
        mean = sum(ordered) / n if n else None
        rows = [self.row(metric_id, "mean", mean, n, window=window)]
        for name, q in QUANTILES.items():
            found = quantile(ordered, q)
            if found is None:
                note = f"needs {samples_needed(q)} samples"
                rows.append(self.row(metric_id, name, None, n, window=window, note=note))
                continue
            bounds = (found.low, found.high)
            rows.append(self.row(metric_id, name, found.value, n, window=window, bounds=bounds))
        rows.append(self.row(metric_id, "min", ordered[0] if n else None, n, window=window))
        rows.append(self.row(metric_id, "max", ordered[-1] if n else None, n, window=window))
        return rows


def _window_rows(
    maker: RowMaker, requests: Sequence[RequestTranscript], window: Window
) -> list[MetricRow]:
    rows: list[MetricRow] = []
    for metric_id, values in samples(window.sent_within(requests)).items():
        rows += maker.distribution(metric_id, values, window)
    flowed = flow(requests, window)
    note = f"window of {window.length_s:.3f} s from {window.start_s:.3f} s"
    note += _who_counted(requests)
    for metric_id, amount in (
        ("throughput.output", flowed.output_tokens),
        ("throughput.total", flowed.total_tokens),
        ("throughput.requests", float(flowed.completed)),
    ):
        rate = None if amount is None else amount / window.length_s
        rows.append(maker.row(metric_id, "value", rate, flowed.completed, window=window, note=note))
    return rows


def _who_counted(requests: Sequence[RequestTranscript]) -> str:
    """Whose count of output tokens it is, where it is not the server's."""
    sources = {TokenLedger.of(r).source for r in requests if r.ending is Ending.COMPLETE}
    if None in sources:
        return "; nobody counts the tokens: the server tells none, and no tokenizer was given"
    others = sorted(s for s in sources if s and s != "the server's usage")
    return f"; output tokens counted by {' and '.join(others)}" if others else ""


def _count_rows(maker: RowMaker, requests: Sequence[RequestTranscript]) -> list[MetricRow]:
    endings = Counter(r.ending for r in requests)
    complete, cancelled = endings[Ending.COMPLETE], endings[Ending.CANCELLED]
    attempted = len(requests) - cancelled
    failures = {
        e.value: n for e, n in endings.items() if e not in (Ending.COMPLETE, Ending.CANCELLED)
    }
    note = ", ".join(f"{n} {name}" for name, n in sorted(failures.items())) or None
    closed = sum(r.closed_without_done for r in requests)
    unusual = f"{closed} of them gave a finish reason but no [DONE]" if closed else None
    ledgers = [TokenLedger.of(r) for r in requests if r.ending is Ending.COMPLETE]

    def total(values: Iterable[int | None]) -> float | None:
        known = list(values)
        return None if not known or None in known else float(sum(v or 0 for v in known))

    mismatched = float(sum(not ledger.agrees for ledger in ledgers)) if ledgers else None
    return [
        maker.row("requests.attempted", "value", attempted, len(requests)),
        maker.row("requests.complete", "value", complete, len(requests), note=unusual),
        maker.row("requests.cancelled", "value", cancelled, len(requests)),
        maker.row("requests.failed", "value", sum(failures.values()), len(requests), note=note),
        maker.row("tokens.server", "value", total(x.server for x in ledgers), complete),
        maker.row("tokens.ids", "value", total(x.ids for x in ledgers), complete),
        maker.row("tokens.text", "value", total(x.text for x in ledgers), complete),
        maker.row("tokens.chunks", "value", total(x.chunks for x in ledgers), complete),
        maker.row("tokens.mismatched_requests", "value", mismatched, complete),
    ]


def _plan_rows(maker: RowMaker, requests: Sequence[RequestTranscript]) -> list[MetricRow]:
    """How many requests were not as long as planned; None where nothing was planned or told."""
    told = [r for r in requests if r.ending is Ending.COMPLETE and r.usage is not None]
    prompts = [
        r.usage.prompt_tokens != r.planned_prompt_tokens
        for r in told
        if r.usage is not None and r.planned_prompt_tokens is not None
    ]
    outputs = [
        r.usage.completion_tokens != r.planned_output_tokens
        for r in told
        if r.usage is not None and r.planned_output_tokens is not None
    ]
    return [
        maker.row(metric_id, "value", float(sum(off)) if off else None, len(off))
        for metric_id, off in (
            ("lengths.prompt_off_plan", prompts),
            ("lengths.output_off_plan", outputs),
        )
    ]


def _goodput_row(
    maker: RowMaker, requests: Sequence[RequestTranscript], objectives: tuple[Slo, ...]
) -> MetricRow:
    attempted = [r for r in requests if r.ending is not Ending.CANCELLED]
    good = sum(is_good(r, objectives) for r in attempted)
    value = good / len(attempted) if attempted else None
    note = "objectives: " + ", ".join(map(str, objectives))
    return maker.row("goodput", "value", value, len(attempted), note=note)
