"""Drawing: every random choice of a check goes through here, is recorded, and can be replayed.

Only plain values are drawn (numbers, strings, lists of them), and requests are built from them, so
a recorded example is JSON and a failure can be replayed without Hypothesis. Prompt *contents* come
from a drawn integer rather than being drawn token by token: that keeps long prompts cheap and
shrinks to short prompts first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from hypothesis import strategies as st

# Page sizes, chunk sizes and bucket sizes in use; where a server's own is unknown, all are tried.
COMMON_SIZES: Final = (16, 32, 64, 128, 256, 512)


class Draws(Protocol):
    """A source of choices, which remembers them."""

    recorded: list[Any]

    def draw(self, strategy: st.SearchStrategy[Any], label: str) -> Any:
        """One value."""


class HypothesisDraws:
    """Choices from a running Hypothesis example."""

    def __init__(self, source: st.DataObject) -> None:
        self._source = source
        self.recorded: list[Any] = []

    def draw(self, strategy: st.SearchStrategy[Any], label: str) -> Any:
        """Draw from Hypothesis and remember the value."""
        value = self._source.draw(strategy, label=label)
        self.recorded.append(value)
        return value


class DrawsDiffer(Exception):
    """A recorded example does not fit the check: it is from another version of the suite."""


class RecordedDraws:
    """The choices of an earlier example, in the same order."""

    def __init__(self, recorded: Sequence[Any]) -> None:
        self.recorded = list(recorded)
        self._next = 0

    def draw(self, strategy: st.SearchStrategy[Any], label: str) -> Any:
        """The next recorded value. Raises DrawsDiffer when there are no more."""
        if self._next >= len(self.recorded):
            raise DrawsDiffer(f"the recorded example holds no value for {label!r}")
        self._next += 1
        return self.recorded[self._next - 1]


def edges(sizes: Iterable[int], *, low: int, high: int) -> list[int]:
    """Each size, twice and thrice each size, all -1, 0 and +1, as far as they lie in the range."""
    numbers = {k * size + d for size in sizes for k in (1, 2, 3) for d in (-1, 0, 1)}
    return sorted(n for n in numbers if low <= n <= high) or [low]


def prompt_lengths(
    sizes: Iterable[int], *, low: int = 2, high: int = 300
) -> st.SearchStrategy[int]:
    """Prompt lengths in tokens: short ones, and those at the boundaries of ``sizes``."""
    short = st.integers(low, max(low, min(high, 40)))
    return st.one_of(short, st.sampled_from(edges(sizes, low=low, high=high)))


def contents() -> st.SearchStrategy[int]:
    """A number that decides what a prompt says."""
    return st.integers(0, 2**16 - 1)
