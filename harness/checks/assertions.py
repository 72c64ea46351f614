"""Assertions of the suite: each says what is, what should be, and which request shows it.

They raise `PropertyBroken`, never a bare AssertionError, so that a failing check can always be
reported with expected, actual and the place of the first difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

from harness.oracles.oracle import first_difference
from harness.transcript import Ending, RequestTranscript

REFUSAL_S: Final = 5.0


class PropertyBroken(AssertionError):
    """The checked sentence does not hold.

    ``guess`` is the likely cause, or what finds it: shrinking discards most failures unexplained.
    """

    def __init__(
        self,
        message: str,
        *,
        request_key: str | None = None,
        expected: Any = None,
        actual: Any = None,
        first_difference: int | None = None,
        guess: str | Callable[[], str | None] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.request_key = request_key
        self.expected = expected
        self.actual = actual
        self.first_difference = first_difference
        self.guess = guess


def broken(message: str, **details: Any) -> NoReturn:
    """Raise PropertyBroken."""
    __tracebackhide__ = True
    raise PropertyBroken(message, **details)


def assert_that(holds: bool, message: str, **details: Any) -> None:
    """Raise PropertyBroken with ``message`` unless ``holds``."""
    __tracebackhide__ = True
    if not holds:
        raise PropertyBroken(message, **details)


def assert_equal(what: str, actual: Any, expected: Any, *, key: str | None = None) -> None:
    """``what`` is ``actual`` and should be ``expected``."""
    __tracebackhide__ = True
    if actual == expected:
        return
    difference = None
    if isinstance(actual, str | list | tuple) and isinstance(expected, str | list | tuple):
        difference = first_difference(expected, actual)
    raise PropertyBroken(
        f"{what} is {_short(actual)}, should be {_short(expected)}",
        request_key=key,
        expected=expected,
        actual=actual,
        first_difference=difference,
    )


def assert_complete(*requests: RequestTranscript) -> None:
    """Every request ended as the API says, without error."""
    __tracebackhide__ = True
    for request in requests:
        if request.ending is not Ending.COMPLETE:
            detail = f": {request.error}" if request.error else ""
            raise PropertyBroken(
                f"request {request.key} ended in {request.ending.value}{detail}",
                request_key=request.key,
                expected=Ending.COMPLETE.value,
                actual=request.ending.value,
            )


def assert_refused(request: RequestTranscript) -> None:
    """The server answered 4xx."""
    __tracebackhide__ = True
    if request.ending is not Ending.REFUSED:
        raise PropertyBroken(
            f"request {request.key} ended in {request.ending.value} (HTTP {request.status}), "
            "should be refused with 4xx",
            request_key=request.key,
            expected="4xx",
            actual=request.status if request.status is not None else request.ending.value,
        )


def assert_refused_at_once(request: RequestTranscript) -> None:
    """The server answered 4xx, and did not let the client wait for it."""
    __tracebackhide__ = True
    assert_refused(request)
    waited_s = (request.t_end_s or 0) - (request.t_sent_s or 0)
    assert_that(
        waited_s <= REFUSAL_S,
        f"the refusal took {waited_s:.1f} s, should be at most {REFUSAL_S:g}",
        request_key=request.key,
        expected=REFUSAL_S,
        actual=waited_s,
    )


def assert_distinct(what: str, values: Iterable[Any]) -> None:
    """No value occurs twice."""
    __tracebackhide__ = True
    seen = list(values)
    twice = sorted({repr(v) for v in seen if seen.count(v) > 1})
    assert_that(not twice, f"{what} are not distinct: {', '.join(twice)}", actual=seen)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
