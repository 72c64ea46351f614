"""The article's page: the claims, the numbers found for them, the pictures."""

from __future__ import annotations

from collections.abc import Sequence

from harness.article.figures import (
    cache_cost_figure,
    first_token_figure,
    policies_figure,
    slope_text,
)
from harness.article.findings import Findings
from harness.report.page import environment
from harness.report.pictures import Picture
from harness.report.schedule_figure import schedule_figure
from harness.report.theme import inline_svg
from harness.results.document import ResultDocument

ARTICLE_FILE = "article.html"


def render_article(
    found: Findings,
    document: ResultDocument,
    masks: Sequence[Picture],
    successive: Sequence[Picture],
    token_budget: int,
) -> str:
    """The whole page as one HTML file."""
    timeline = schedule_figure(found.timeline, labels={}, token_budget=token_budget)
    return (
        environment()
        .get_template("article.html.j2")
        .render(
            found=found,
            run=document,
            masks=masks,
            successive=successive,
            slope_text=slope_text,
            first_token_svg=inline_svg(
                first_token_figure(found.first_token), "first-token", "Time of each token"
            ),
            cache_cost_svg=inline_svg(
                cache_cost_figure(found.cache_cost),
                "cache-cost",
                "Cost of the next token by length",
            ),
            policies_svg=inline_svg(
                policies_figure(found.policies), "policies", "Throughput of four ways of batching"
            ),
            timeline_svg=inline_svg(timeline, "timeline", "The continuous run as a timeline"),
        )
    )
