"""The rule: what each outcome needs, and that Holm and the units are as stated."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.gate.decision import Outcome, decide, overall
from harness.gate.guarded_metric import DEFAULT_METRICS, GuardedMetric

TPOT = GuardedMetric("tpot", "p50", 0.05)
RATE = GuardedMetric("throughput.output", "value", 0.03, larger_is_worse=False)
WOBBLE = [0.002, -0.001, 0.0015, -0.002, 0.001, -0.0015, 0.0005, -0.0005]


def around(slowdown: float, scale: float = 1.0) -> list[float]:
    return [math.log1p(slowdown) + scale * w for w in WOBBLE]


@pytest.mark.parametrize(
    ("slowdown", "scale", "outcome"),
    [
        (0.10, 1, Outcome.REGRESSION),
        (0.06, 1, Outcome.REGRESSION),
        (0.05, 1, Outcome.INCONCLUSIVE),
        (0.00, 1, Outcome.EQUIVALENT),
        (0.04, 1, Outcome.EQUIVALENT),
        (-0.20, 1, Outcome.BETTER),
        (-0.05, 1, Outcome.BETTER),
        (0.00, 100, Outcome.INCONCLUSIVE),
        (0.10, 100, Outcome.INCONCLUSIVE),
    ],
)
def test_each_outcome(slowdown: float, scale: float, outcome: Outcome) -> None:
    """One metric, quiet or noisy pairs around a known slowdown."""
    (decision,) = decide({TPOT: around(slowdown, scale)})
    assert decision.outcome is outcome, decision
    assert decision.too_noisy is (scale == 100)


def test_too_few_pairs_decide_nothing() -> None:
    """Four pairs are not a gate, whatever they say."""
    (decision,) = decide({TPOT: [1.0] * 4})
    assert decision.outcome is Outcome.INCONCLUSIVE
    assert "at least 5" in decision.reason
    assert decision.slowdown is None


def test_identical_pairs_are_equivalent_or_worse_without_noise() -> None:
    """No spread at all is legitimate: a simulated clock gives it."""
    assert decide({TPOT: [0.0] * 5})[0].outcome is Outcome.EQUIVALENT
    assert decide({TPOT: [0.1] * 5})[0].outcome is Outcome.REGRESSION


def test_holm_asks_more_of_the_first_of_many() -> None:
    """A slowdown just significant alone is not among four metrics; a clear one still is."""
    scale = 8.0
    alone = next(
        s / 1e4
        for s in range(500, 1000)
        if decide({TPOT: around(s / 1e4, scale)})[0].outcome is Outcome.REGRESSION
    )
    quiet = {m: around(0.0) for m in DEFAULT_METRICS if m.id != "tpot"}
    among = decide({TPOT: around(alone, scale), **quiet})
    assert among[0].outcome is not Outcome.REGRESSION
    clear = decide({TPOT: around(0.5), **quiet})
    assert clear[0].outcome is Outcome.REGRESSION
    assert overall(clear) is Outcome.REGRESSION


def test_the_worst_news_wins() -> None:
    """Better on one metric does not buy a regression on another."""
    decisions = decide({TPOT: around(-0.3), RATE: around(0.2)})
    assert overall(decisions) is Outcome.REGRESSION
    assert overall([]) is Outcome.INCONCLUSIVE


@given(st.floats(0.1, 1e4), st.floats(0.1, 1e4))
def test_slowdown_is_the_same_either_way_of_measuring(base: float, head: float) -> None:
    """A time that doubles and a rate that halves are the same slowdown; swapping negates it."""
    assert TPOT.slowdown(base, head) == pytest.approx(RATE.slowdown(head, base))
    assert TPOT.slowdown(base, head) == pytest.approx(-TPOT.slowdown(head, base))


@pytest.mark.parametrize(
    ("text", "metric"),
    [
        ("tpot:p50=5%", TPOT),
        ("tpot=5", TPOT),
        ("throughput.output=3%", RATE),
        ("chunk_gap:p99=15%", DEFAULT_METRICS[3]),
    ],
)
def test_a_metric_is_read_as_written(text: str, metric: GuardedMetric) -> None:
    """Id, statistic, delta; which way is worse follows from the id."""
    assert GuardedMetric.parse(text) == metric


@pytest.mark.parametrize("text", ["", "tpot", "tpot=", "=5%", "tpot=0%", "tpot=200%", "tpot=x%"])
def test_a_metric_that_cannot_be_read_is_refused(text: str) -> None:
    """One sentence, no guess."""
    with pytest.raises(ValueError, match=r"metric|delta"):
        GuardedMetric.parse(text)
