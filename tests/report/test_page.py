"""The page stands alone, says the truth in its headline, and runs no code of a hostile result."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from harness.report.metric_table import metric_lines
from harness.report.page import render_run
from harness.report.quantity import quantity
from tests.report.fixtures import make_run

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>$x_{1$"


class Tags(HTMLParser):
    """Collects the elements and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def elements(page: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(page)
    return parser.tags


def test_the_page_has_every_part(tmp_path: Path) -> None:
    """Headline, failure with its workload, five pictures, tables, provenance."""
    page = render_run(make_run(tmp_path))
    assert "1 of 2 checks passed; 1 fail" in page
    assert 'href="failures/ISO-1-1.json"' in page
    assert page.count("<svg ") == 5
    assert "the same step padded to a rectangle would have 27" in page
    assert "ttft.response" in page


def test_the_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    """No script, no outside reference, no duplicate id."""
    page = render_run(make_run(tmp_path))
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for tag, attributes in elements(page):
        assert tag not in {"script", "iframe", "object", "embed", "link", "base"}
        for name in ("src", "href", "xlink:href", "data"):
            reference = attributes.get(name) or ""
            assert not re.match(r"(?i)\s*(https?:|//|javascript:|data:)", reference), reference


def test_a_hostile_result_runs_no_code(tmp_path: Path) -> None:
    """Markup in a server name, a key, an id, a reason or the command comes out as text."""
    page = render_run(make_run(tmp_path, hostile=HOSTILE))
    clean = {tag for tag, _ in elements(render_run(make_run(tmp_path)))}
    assert {tag for tag, _ in elements(page)} == clean
    assert not [a for _, attrs in elements(page) for a in attrs if a.startswith("on")]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "s", "–"),
        (0.0, "s", "0 ms"),
        (0.0123456, "s", "12.3 ms"),
        (0.000012, "s", "12 µs"),
        (1.5, "s", "1.5 s"),
        (1234.56, "tokens/s", "1,235 tokens/s"),
        (3.0, "1", "3"),
    ],
)
def test_quantities_read_well(value: float | None, unit: str, text: str) -> None:
    """Three figures, a unit that fits, a dash for no value."""
    assert quantity(value, unit) == text


def test_an_undefined_metric_is_a_dash() -> None:
    """Null is shown as no value, never as 0."""
    statistics, (line,) = metric_lines(
        [
            {
                "id": "ttft.response",
                "statistic": "p99",
                "unit": "s",
                "value": None,
                "count": 5,
                "low": None,
                "high": None,
                "confidence": None,
                "window": "whole",
                "workload_sha256": None,
            }
        ]
    )
    assert statistics == ["p99"]
    assert line.cells == {"p99": "–"}
