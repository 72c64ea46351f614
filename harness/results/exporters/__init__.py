"""A result document in the formats that other tools read."""

from collections.abc import Callable, Mapping
from typing import Final

from harness.results.document import ResultDocument
from harness.results.exporters.csv_table import to_csv
from harness.results.exporters.github_benchmark import to_bigger_is_better, to_smaller_is_better
from harness.results.exporters.junit import to_junit
from harness.results.exporters.llmd_report import to_llmd_report

EXPORTERS: Final[Mapping[str, Callable[[ResultDocument], str]]] = {
    "junit": to_junit,
    "csv": to_csv,
    "github-action-benchmark-smaller": to_smaller_is_better,
    "github-action-benchmark-bigger": to_bigger_is_better,
    "llm-d": to_llmd_report,
}

__all__ = ["EXPORTERS"]
