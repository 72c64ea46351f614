"""Fits arrival and length models to a trace.

Real traffic is no renewal process: in the Azure conversation trace the gaps look Poisson (their
coefficient of variation is 1.09) while counts over a minute vary 16 times as much as Poisson's. So
arrivals are fitted to the curve of the index of dispersion (variance over mean of the counts in
windows of growing length), which is what a queue feels.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from workloads.arrivals import Modulated
from workloads.lengths import Quantiles
from workloads.trace import Trace

WINDOWS_S: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
QUANTILE_POINTS: Final = (
    0.0, 0.01, 0.025, *(i / 20 for i in range(1, 20)), 0.965, 0.975, 0.985, 0.99, 0.9925, 0.995,
    0.9975, 0.999, 0.9995, 1.0,
)  # fmt: skip

LEAST_EXCESS: Final = 0.25
"""Below this much dispersion above 1 a trace is called Poisson."""


def dispersion(times: Sequence[float], window_s: float) -> float | None:
    """Variance over mean of the counts in whole windows; None with fewer than 10 windows."""
    windows = int((times[-1] - times[0]) / window_s)
    if windows < 10:
        return None
    counts = Counter(int((t - times[0]) / window_s) for t in times)
    values = [counts[i] for i in range(windows)]
    mean = sum(values) / windows
    return sum((v - mean) ** 2 for v in values) / (windows - 1) / mean


def fit_modulated(times: Sequence[float]) -> Modulated:
    """The two-state process with this trace's mean rate and curve of dispersion.

    The curve fixes how much the rate varies and how fast it is forgotten. What is left free, the
    share of time that is busy, is a half, or less where the quiet rate would else be negative.
    Raises ValueError for a trace that is too short or no more variable than Poisson.
    """
    curve = [(w, d) for w in WINDOWS_S if (d := dispersion(times, w)) is not None]
    if len(curve) < 3:
        raise ValueError("the trace is too short to fit a rate that changes")
    rate = (len(times) - 1) / (times[-1] - times[0])
    best: tuple[float, float, float] | None = None
    for step in range(400):
        mixing = 10 ** (-4 + 5 * step / 399)
        shape = [1.0 - (1.0 - math.exp(-mixing * w)) / (mixing * w) for w, _ in curve]
        # Least squares in relative error: the limit that fits the curve best for this mixing.
        up = sum(s * (d - 1.0) / d**2 for s, (_, d) in zip(shape, curve, strict=True))
        down = sum(s * s / d**2 for s, (_, d) in zip(shape, curve, strict=True))
        limit = max(0.0, up / down)
        error = sum(
            ((1.0 + limit * s - d) / d) ** 2 for s, (_, d) in zip(shape, curve, strict=True)
        )
        if best is None or error < best[0]:
            best = (error, mixing, limit)
    assert best is not None  # noqa: S101  (the loop ran)
    _, mixing, limit = best
    if limit < LEAST_EXCESS:
        raise ValueError("arrivals are no more variable than Poisson: use that")
    return _with(rate, mixing, limit)


def fit_quantiles(lengths: Sequence[int]) -> Quantiles:
    """The quantile table of some lengths."""
    ordered = sorted(lengths)
    last = len(ordered) - 1
    tokens = [float(ordered[min(last, round(q * last))]) for q in QUANTILE_POINTS]
    return Quantiles(QUANTILE_POINTS, tokens)


def recipe_toml(trace: Trace, *, title: str, source: str, licence: str, requests: int) -> str:
    """A recipe whose arrivals and lengths are fitted to ``trace``, as TOML.

    Prompt and output lengths are drawn independently of each other.
    """
    times = [row.arrival_s for row in trace.rows]
    lines = [
        f"title = {json.dumps(title)}",
        f"source = {json.dumps(source)}",
        f"licence = {json.dumps(licence)}",
        f"requests = {requests}",
        "params = { temperature = 0.0, ignore_eos = true }",
        "",
        "[arrivals]",
    ]
    try:
        model = fit_modulated(times)
        names = ("quiet_rate", "busy_rate", "mean_quiet_s", "mean_busy_s")
        lines += ['kind = "mmpp"', *(f"{n} = {round(getattr(model, n), 4)}" for n in names)]
    except ValueError:
        rate = (len(times) - 1) / (times[-1] - times[0])
        lines += ['kind = "poisson"', f"rate = {rate:.6g}"]
    for name in ("prompt_tokens", "output_tokens"):
        table = fit_quantiles([getattr(row, name) for row in trace.rows])
        lines += ["", f"[{name}]", 'kind = "quantiles"']
        lines += [f"at = {list(table.at)}", f"tokens = {[int(t) for t in table.tokens]}"]
    return "\n".join(lines) + "\n"


def _with(rate: float, mixing: float, limit: float) -> Modulated:
    deviation = math.sqrt(limit * rate * mixing / 2.0)  # of the rate itself
    busy = min(0.5, rate**2 / (rate**2 + deviation**2))
    return Modulated(
        quiet_rate=max(0.0, rate - deviation * math.sqrt(busy / (1.0 - busy))),
        busy_rate=rate + deviation * math.sqrt((1.0 - busy) / busy),
        mean_quiet_s=1.0 / (mixing * busy),
        mean_busy_s=1.0 / (mixing * (1.0 - busy)),
    )
