"""The terminal view of a measured run."""

from __future__ import annotations

from rich.text import Text

from harness.console import plain_console
from harness.load.bench_run import BenchOutcome
from harness.metrics.metric_table import print_metrics


def print_outcome(outcome: BenchOutcome) -> None:
    """The metrics, whether the client kept up, and where it was all written."""
    console = plain_console(highlight=True)
    print_metrics(console, outcome.rows, f"{outcome.model}, {outcome.load.title}")
    for sentence in outcome.wording.sentences():
        console.print(sentence, highlight=False, markup=False)
    health = outcome.health
    if health.valid:
        lag = health.loop_lag_p99_s
        late = f", loop lag p99 {lag * 1000:.1f} ms" if lag is not None else ""
        console.print(f"client: valid, {health.cpu_s:.2f} s of CPU{late}", highlight=False)
    if (error := health.calibration.get("calibration_ttft_error_p99_s")) is not None:
        gap = health.calibration["calibration_gap_error_p99_s"]
        console.print(
            f"client's own error, p99: TTFT {error * 1000:.2f} ms, gap {gap * 1000:.2f} ms",
            highlight=False,
        )
    for reason in health.reasons:
        console.print(Text.assemble(("INVALID", "bold red"), f": {reason}"))
    if outcome.page is not None:
        console.print(f"page: {outcome.page}", highlight=False, soft_wrap=True)
    console.print(f"run folder: {outcome.folder}", highlight=False, soft_wrap=True)
