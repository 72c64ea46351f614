"""Reads a Prometheus text page into plain numbers."""

from __future__ import annotations

import math


def read_metrics(text: str) -> dict[str, float]:
    """Sample name to value; samples that differ only in labels are added up.

    Histogram buckets are left out (their ``_sum`` and ``_count`` stay), and so are lines that are
    not samples: a page is a courtesy, not something to fail on.
    """
    from prometheus_client.parser import text_string_to_metric_families

    values: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.endswith("_bucket") or math.isnan(sample.value):
                    continue
                values[sample.name] = values.get(sample.name, 0.0) + sample.value
    except ValueError:
        return values
    return values
