"""The binomial distribution function, in plain Python.

scipy has it too, but importing scipy costs more CPU time than a benchmark of some seconds: 0.4 s
and more at the end of each run, for one function of two dozen lines.
"""

from __future__ import annotations

import math
from typing import Final

_CLOSE: Final = 1e-14
_TINY: Final = 1e-300


def at_most(k: int, n: int, p: float) -> float:
    """P(B <= k) of B ~ Binomial(n, p), 0 < p < 1.

    It is the regularised incomplete beta function I(1 - p; n - k, k + 1) (Abramowitz and Stegun,
    26.5.24), by its continued fraction, which takes about sqrt(n) steps.
    """
    if k < 0:
        return 0.0
    if k >= n:
        return 1.0
    a, b, x = n - k, k + 1, 1.0 - p
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_front + a * math.log1p(-p) + b * math.log(p))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, p) / b


def _fraction(a: int, b: int, x: float) -> float:
    """The continued fraction of I(x; a, b) (Abramowitz and Stegun, 26.5.8), by Lentz's method."""
    c, d = 1.0, 1.0 / _not_zero(1.0 - (a + b) * x / (a + 1))
    value = d
    m, step = 0, 0.0
    while abs(step - 1.0) > _CLOSE:
        m += 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1.0 / _not_zero(1.0 + even * d), _not_zero(1.0 + even / c)
        value *= d * c
        d, c = 1.0 / _not_zero(1.0 + odd * d), _not_zero(1.0 + odd / c)
        step = d * c
        value *= step
        if m > a + b:  # rounding alone keeps the last step from being exactly 1
            break
    return value


def _not_zero(x: float) -> float:
    return x if abs(x) > _TINY else _TINY
