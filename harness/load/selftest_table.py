"""The terminal view of a self-calibration."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from harness.load.selftest import Level, Spread


def level_table(levels: Sequence[Level]) -> Table:
    """One row a level; errors in milliseconds as median / p99 / max."""
    table = Table(title="the client's own error, ms (p50 / p99 / max)", title_justify="left")
    for title in ("streams", "events/s", "TTFT mean", "TTFT error", "gap error", "CPU us/event"):
        table.add_column(title, justify="right")
    table.add_column("loop lag p99, ms", justify="right")
    for level in levels:
        lag = level.loop_lag_p99_s
        table.add_row(
            str(level.streams),
            f"{level.events_per_s:,.0f}",
            f"{level.ttft_mean_s * 1000:.2f}",
            _spread(level.ttft),
            _spread(level.gap),
            f"{level.cpu_us_per_event:.1f}",
            "-" if lag is None else f"{lag * 1000:.1f}",
        )
    return table


def _spread(spread: Spread) -> str:
    return f"{spread.p50_s * 1e3:.3f} / {spread.p99_s * 1e3:.3f} / {spread.max_s * 1e3:.2f}"
