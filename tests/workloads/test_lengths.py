"""Length models as distributions."""

from __future__ import annotations

from collections import Counter

import pytest
from scipy.stats import kstest, lognorm

from workloads.fit import fit_quantiles
from workloads.lengths import (
    Boundaries,
    Fixed,
    LogNormal,
    Quantiles,
    Uniform,
    boundary_lengths,
    lengths_from,
)
from workloads.seeded import stream


def draws(model, count: int = 5000) -> list[int]:
    rng = stream(0, "lengths")
    return [model.draw(rng) for _ in range(count)]


def test_fixed_and_uniform():
    assert set(draws(Fixed(7), 10)) == {7}
    counts = Counter(draws(Uniform(3, 6), 8000))
    assert sorted(counts) == [3, 4, 5, 6]
    assert min(counts.values()) > 1800


def test_a_lognormal_has_its_median_and_spread_and_stays_in_its_range():
    found = draws(LogNormal(500.0, 0.7))
    assert kstest(found, lognorm(s=0.7, scale=500.0).cdf).statistic < 0.03
    clipped = draws(LogNormal(500.0, 0.7, low=400, high=600))
    assert min(clipped) == 400
    assert max(clipped) == 600


def test_a_quantile_table_gives_back_the_lengths_it_was_fitted_to():
    made = sorted(draws(LogNormal(500.0, 0.7)))
    again = sorted(draws(fit_quantiles(made)))
    for q in (0.1, 0.5, 0.9, 0.99):
        index = int(q * len(made))
        assert again[index] == pytest.approx(made[index], rel=0.08)
    assert sum(again) == pytest.approx(sum(made), rel=0.03)


def test_boundaries_are_at_each_size_and_beside_it():
    lengths = boundary_lengths([16, 64], low=2, high=70)
    assert lengths == [2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 70]
    assert set(draws(Boundaries([16], 1, 40))) == {1, 15, 16, 17, 31, 32, 33, 40}


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"kind": "zipf"}, "known: fixed"),
        ({"kind": "fixed"}, "tokens"),
        ({"kind": "quantiles", "at": [0, 1], "tokens": [2, 1]}, "ascending"),
        ({"kind": "quantiles", "at": [0.1, 1], "tokens": [1, 2]}, "begins at 0"),
    ],
)
def test_a_bad_table_is_refused(table: dict[str, object], sentence: str):
    with pytest.raises(ValueError, match=sentence):
        lengths_from(table)


def test_a_table_is_scaled():
    assert max(draws(Quantiles([0.0, 1.0], [100.0, 100.0], scale=0.5), 5)) == 50
