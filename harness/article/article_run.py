"""Runs the experiments one after another and puts what they found into a run folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from harness.article.experiments import cache_cost, cache_sizes, chunked, first_token, padding
from harness.article.findings import Findings
from harness.article.masks import continuous_pictures, still_pictures
from harness.article.page import ARTICLE_FILE, render_article
from harness.article.policies import ragged_lengths, run_policies
from harness.article.trial import drawn
from harness.results.document import MetricRow
from harness.results.run_folder import RunFolder
from reference_engine.model import LoadedModel

LENGTHS: Final = (64, 128, 192, 256, 384, 512, 640, 768)
CHUNKED_PROMPT: Final = 300
BUDGETS: Final = (16, 64, 128, 300)
REQUESTS: Final = 32
FEW_REQUESTS: Final = 6
STREAMS: Final = 8
TOKEN_BUDGET: Final = 64


def find_out(
    model: LoadedModel, name: str, tell: Callable[[str], None], *, thorough: bool = True
) -> Findings:
    """Run all experiments. ``tell`` is given a line before each; not ``thorough`` is for tests."""
    tell("first token against the stream after it")
    first = first_token(model) if thorough else first_token(model, 40, 8)
    tell("cost of a token by length, with and without the cache")
    cost = cache_cost(model, LENGTHS) if thorough else cache_cost(model, (16, 32, 64), 1)
    tell("chunked prefill")
    chunks = chunked(model, CHUNKED_PROMPT, BUDGETS) if thorough else chunked(model, 40, (16, 40))
    tell("padding against ragged rows")
    padded = padding(model) if thorough else padding(model, 3, 20, repeats=1)
    tell("four ways of batching")
    lengths = ragged_lengths(REQUESTS if thorough else FEW_REQUESTS)
    policies, continuous = run_policies(model, lengths, STREAMS if thorough else 3, TOKEN_BUDGET)
    return Findings(
        model=name,
        first_token=first,
        cache_cost=cost,
        cache_sizes=cache_sizes(model, name),
        chunked=tuple(chunks),
        padding=padded,
        policies=tuple(policies),
        continuous=continuous,
        timeline=tuple(drawn(continuous)),
    )


def write_article(run: RunFolder, model: LoadedModel, found: Findings) -> None:
    """Record the numbers and write the page into the run's folder."""
    run.add_metrics(metric_rows(found))
    page = render_article(
        found,
        run.document,
        list(still_pictures()),
        list(continuous_pictures(model)),
        TOKEN_BUDGET,
    )
    run.write_file(ARTICLE_FILE, page.encode())


def metric_rows(found: Findings) -> list[MetricRow]:
    """Every number of the page as a metric of the document."""
    return list(_rows(found))


def _rows(found: Findings) -> Iterator[MetricRow]:
    first, cost, padded = found.first_token, found.cache_cost, found.padding
    yield _row("article.first_token", "value", first.first_s, "s")
    yield _row("article.first_token_ratio", "value", first.ratio, "1", len(first.later_s))
    for name, slope in (("cached", cost.cached_slope), ("recomputed", cost.recomputed_slope)):
        row = _row(f"article.slope_{name}", "value", slope.per_token_s, "s", len(cost.lengths))
        yield {**row, "low": slope.low, "high": slope.high, "confidence": 0.95}
    for size in found.cache_sizes:
        yield {
            **_row("article.kv_bytes_per_layer", "value", size.per_layer, "B"),
            "note": size.name,
        }
        yield {
            **_row("article.kv_bytes_per_token", "value", size.per_token, "B"),
            "note": size.name,
        }
    for chunk in found.chunked:
        row = _row("article.chunked_prefill", f"budget-{chunk.budget}", chunk.cpu_s, "s")
        yield {**row, "count": len(chunk.chunks)}
    yield _row("article.padding_rows_wasted", "value", padded.wasted, "1")
    yield _row("article.padding_time_ratio", "value", padded.ratio, "1")
    slowest = found.policies[0].rate
    for policy in found.policies:
        statistic = policy.name.replace(", ", "-").replace(" ", "-")
        yield _row("article.policy_rate", statistic, policy.rate, "tokens/s")
        yield _row("article.policy_speedup", statistic, policy.rate / slowest, "1")
        yield _row("article.policy_rows", statistic, policy.rows, "1")


def _row(metric_id: str, statistic: str, value: float, unit: str, count: int = 1) -> MetricRow:
    return {
        "id": metric_id,
        "statistic": statistic,
        "unit": unit,
        "value": float(value),
        "count": count,
        "low": None,
        "high": None,
        "confidence": None,
        "window": None,
        "workload_sha256": None,
    }
