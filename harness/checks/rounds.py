"""Measures of time that are taken again until they agree.

One round on a busy machine says little. Three are taken; where their median accuses the server,
six more, and it is accused only if most of all nine agree. Where they do not, the evidence
``agreement`` is lacking, and the verdict is inconclusive.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

from harness.checks.context import CheckContext

ROUNDS: Final = 3
MOST_ROUNDS: Final = 9
LEAST_AGREEMENT: Final = 0.6
LEAST_CONTROL: Final = 2.0

AGREEING: Final[Mapping[str, float]] = {"agreement": LEAST_AGREEMENT}
"""What a measure without a control must show."""

CONTROLLED: Final[Mapping[str, float]] = {"control": LEAST_CONTROL, **AGREEING}
"""What a measure with a control must show."""


@dataclass(frozen=True, slots=True)
class Round:
    """One measure: a ratio that is large where the technique is in use.

    A round whose ``control`` is below `LEAST_CONTROL` could not have told, and is not counted.
    None where the measure needs no control.
    """

    effect: float
    control: float | None = None

    @property
    def tells(self) -> bool:
        """Whether both cases would have looked different."""
        return self.control is None or self.control >= LEAST_CONTROL


def ratio(above: float, below: float) -> float:
    """``above`` over ``below``, both in seconds, the latter at least a microsecond."""
    return above / max(below, 1e-6)


async def accusing_effect(
    ctx: CheckContext, measure: Callable[[], Awaitable[Round]], least: float
) -> float | None:
    """The median effect where rounds agree that it is below ``least``; None where they do not.

    Records ``effect``, ``control``, ``rounds`` and, unless the rounds disagree, ``agreement``.
    """
    rounds = [await measure() for _ in range(ROUNDS)]
    accused = _median_effect(rounds) < least
    if accused:
        rounds += [await measure() for _ in range(MOST_ROUNDS - ROUNDS)]
    told = [r for r in rounds if r.tells]
    below = sum(r.effect < least for r in told)
    if rounds[0].control is not None:
        ctx.evidence("control", median(r.control or 0.0 for r in rounds))
    ctx.evidence("rounds", len(rounds))
    if not 2 * len(told) > len(rounds):
        return None
    effect = _median_effect(rounds)
    ctx.evidence("effect", effect)
    agreeing = below if accused else len(told) - below
    if agreeing < LEAST_AGREEMENT * len(told):
        return None
    ctx.evidence("agreement", agreeing / len(told))
    return effect if accused else None


def _median_effect(rounds: list[Round]) -> float:
    """The median over the rounds that tell; infinite, which accuses nobody, if none does."""
    return median([r.effect for r in rounds if r.tells] or [float("inf")])
