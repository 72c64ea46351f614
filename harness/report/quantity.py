"""Numbers as a reader wants them: three figures, a unit that fits, and a dash for no value."""

from __future__ import annotations

from typing import Final

NO_VALUE: Final = "\N{EN DASH}"


def quantity(value: float | None, unit: str) -> str:
    """The number with its unit; seconds below one become milliseconds or microseconds."""
    if value is None:
        return NO_VALUE
    if unit == "s":
        if abs(value) < 1e-3 and value:
            return f"{figures(value * 1e6)} \N{MICRO SIGN}s"
        if abs(value) < 1:
            return f"{figures(value * 1e3)} ms"
        return f"{figures(value)} s"
    return figures(value) if unit in ("", "1") else f"{figures(value)} {unit}"


def figures(value: float) -> str:
    """Three significant figures, never in exponent form between a thousandth and a billion."""
    if value == 0 or float(value).is_integer():
        return f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.3g}"
    if abs(value) >= 100:
        return f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.3g}"
    return f"{value:.3g}"
