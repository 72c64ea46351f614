"""Arrival models as distributions: exact rate, gaps, dispersion; and one schedule for a seed."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from scipy.stats import kstest

from workloads.arrivals import AtOnce, Constant, Gamma, Modulated, Poisson, Ramp, arrivals_from
from workloads.fit import dispersion, fit_modulated
from workloads.seeded import stream

MODELS = [
    AtOnce(),
    Constant(40.0),
    Poisson(40.0),
    Gamma(40.0, 0.3),
    Modulated(10.0, 70.0, 3.0, 3.0),
    Ramp(10.0, 100.0, 5.0),
]


def gaps(times: list[float]) -> list[float]:
    return [b - a for a, b in pairwise([0.0, *times])]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_a_schedule_is_ascending_and_the_same_for_the_same_seed(model):
    first = model.times(500, stream(1, "arrivals"))
    assert first == model.times(500, stream(1, "arrivals"))
    assert first == sorted(first)
    assert len(first) == 500
    assert first[:100] == model.times(100, stream(1, "arrivals")), "longer is the same, continued"


def test_a_schedule_never_changes_between_versions():
    # Literal values: a change of the random source or of a formula would move everybody's runs.
    times = Poisson(10.0).times(3, stream(0, "arrivals"))
    assert times == pytest.approx([0.14777834, 0.19189157, 0.29789394], abs=1e-8)


def test_constant_is_exact_over_a_long_run():
    times = Constant(3.0).times(30_001, stream(0, "x"))
    assert times[30_000] == 10_000.0


def test_poisson_gaps_are_exponential():
    found = gaps(Poisson(40.0).times(5000, stream(2, "arrivals")))
    assert kstest(found, "expon", args=(0, 1 / 40.0)).pvalue > 0.01


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma_gaps_have_the_shape_and_the_rate_that_were_asked_for(burstiness: float):
    found = gaps(Gamma(40.0, burstiness).times(5000, stream(3, "arrivals")))
    scale = 1 / (40.0 * burstiness)
    assert kstest(found, "gamma", args=(burstiness, 0, scale)).pvalue > 0.01


def test_poisson_counts_are_not_overdispersed():
    found = dispersion(Poisson(40.0).times(20_000, stream(4, "arrivals")), 1.0)
    assert found is not None
    assert abs(found - 1.0) < 0.25  # 500 windows: standard error 0.063


@pytest.mark.parametrize("window_s", [1.0, 5.0, 20.0])
def test_a_modulated_process_has_the_dispersion_of_its_formula(window_s: float):
    model = Modulated(10.0, 70.0, 3.0, 3.0)
    times = model.times(400_000, stream(5, "arrivals"))
    found = dispersion(times, window_s)
    assert found is not None
    assert found == pytest.approx(model.dispersion(window_s), rel=0.15)
    assert len(times) / times[-1] == pytest.approx(model.rate, rel=0.05)


def test_a_fit_gives_back_the_process_that_made_the_trace():
    made = Modulated(4.0, 16.0, 30.0, 30.0)
    fitted = fit_modulated(made.times(60_000, stream(6, "arrivals")))
    for window_s in (1.0, 10.0, 60.0):
        assert fitted.dispersion(window_s) == pytest.approx(made.dispersion(window_s), rel=0.3)
    assert fitted.rate == pytest.approx(made.rate, rel=0.1)


def test_a_fit_to_poisson_arrivals_is_refused():
    with pytest.raises(ValueError, match="no more variable than Poisson"):
        fit_modulated(Poisson(5.0).times(20_000, stream(7, "arrivals")))


def test_a_ramp_climbs_and_then_stays():
    times = Ramp(10.0, 100.0, 10.0).times(3000, stream(8, "arrivals"))
    early = sum(t < 1.0 for t in times)
    late = sum(12.0 <= t < 13.0 for t in times)
    assert early < 30
    assert 60 < late < 140
    expected = (10.0 + 100.0) * 10.0 / 2
    assert sum(t < 10.0 for t in times) == pytest.approx(expected, abs=4 * math.sqrt(expected))


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"kind": "tides"}, "known: at-once"),
        ({"kind": "poisson"}, "rate"),
        ({"kind": "poisson", "rate": 0}, "not above 0"),
        ({"kind": "gamma", "rate": 1, "burstiness": "x"}, "burstiness is 'x'"),
    ],
)
def test_a_bad_table_is_refused(table: dict[str, object], sentence: str):
    with pytest.raises(ValueError, match=sentence):
        arrivals_from(table)
