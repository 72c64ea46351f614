"""The binomial distribution function against scipy's and against exact sums; and what it saves."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from fractions import Fraction

import pytest
from scipy.special import bdtr

from harness.metrics.binomial import at_most


@pytest.mark.parametrize("p", [0.001, 0.25, 0.5, 0.9, 0.99, 0.999])
@pytest.mark.parametrize("n", [1, 2, 30, 299, 3_000, 100_000])
def test_it_is_scipys(n: int, p: float):
    rng = random.Random(n)
    near = range(max(0, int(n * p) - 3), min(n, int(n * p) + 4))
    for k in {0, n - 1, n, *near, *(rng.randint(0, n) for _ in range(20))}:
        assert at_most(k, n, p) == pytest.approx(float(bdtr(k, n, p)), rel=1e-9, abs=1e-12)


def test_it_is_the_exact_sum():
    p, n = Fraction(1, 8), 20
    for k in range(n):
        exact = sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))
        assert at_most(k, n, 1 / 8) == pytest.approx(float(exact), rel=1e-13)


def test_outside_it_is_0_and_1():
    assert (at_most(-1, 5, 0.5), at_most(5, 5, 0.5), at_most(9, 5, 0.5)) == (0.0, 1.0, 1.0)


def test_measuring_does_not_load_scipy_or_numpy():
    # Together they cost half a second of CPU in each bench, more than the run's own work.
    program = (
        "import sys; import harness.load.bench_run, harness.load.bench_table; "
        "from harness.metrics.quantile import quantile; quantile([0.0] * 400, 0.99); "
        "print(sorted({'numpy', 'scipy', 'torch'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
