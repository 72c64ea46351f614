"""The register of checks: each a property, with a hand-written id that never changes its meaning.

A check is an async function of a `CheckContext`. It draws requests, runs them, and asserts; it
knows nothing of the server but what a client sees over HTTP. Its id names its chapter and is
never reused: a withdrawn check stays listed in `WITHDRAWN` with the reason.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from harness.checks.capabilities import Capability

if TYPE_CHECKING:
    from harness.checks.context import CheckContext

Body = Callable[["CheckContext"], Coroutine[Any, Any, None]]


class Chapter(StrEnum):
    """The chapters of the suite, in the order in which they run."""

    EQV = "EQV"
    ISO = "ISO"
    CCH = "CCH"
    SCH = "SCH"
    CAN = "CAN"
    SMP = "SMP"
    STR = "STR"
    LEN = "LEN"
    LOG = "LOG"
    API = "API"
    DET = "DET"
    TEC = "TEC"

    @property
    def topic(self) -> str:
        """What the chapter is about, in a few words."""
        return _TOPICS[self]


_TOPICS: Final = {
    Chapter.EQV: "unbatched equivalence",
    Chapter.ISO: "isolation and masks",
    Chapter.CCH: "cache transparency",
    Chapter.SCH: "scheduling and pressure",
    Chapter.CAN: "cancel and retry",
    Chapter.SMP: "sampling independence",
    Chapter.STR: "stream algebra",
    Chapter.LEN: "length and count contract",
    Chapter.LOG: "logprob coherence",
    Chapter.API: "protocol",
    Chapter.DET: "determinism grade",
    Chapter.TEC: "technique detection",
}

# One module a chapter; a large chapter may take two.
_MODULES: Final = (
    "equivalence",
    "isolation",
    "cache",
    "scheduling",
    "cancel",
    "sampling",
    "dice",
    "stream",
    "length",
    "endings",
    "logprobs",
    "protocol",
    "request_ids",
    "determinism",
    "technique",
)


@dataclass(frozen=True, slots=True)
class Check:
    """One property.

    ``answers`` are the public bugs that it would have caught. ``needs`` are capabilities without
    which it is unsupported. ``shows`` is the least evidence, by name, without which a pass means
    nothing and the verdict is inconclusive. ``cost`` scales the number of examples: 2 for a cheap
    check, 0.5 for a dear one, 0 for exactly one example whatever the budget.
    """

    id: str
    sentence: str
    body: Body
    answers: tuple[str, ...] = ()
    needs: tuple[Capability, ...] = ()
    shows: Mapping[str, float] = field(default_factory=dict)
    cost: float = 1.0

    @property
    def chapter(self) -> Chapter:
        """The chapter that the id names."""
        return Chapter(self.id.split("-")[0])

    @property
    def number(self) -> int:
        """The number within the chapter."""
        return int(self.id.split("-")[1])


WITHDRAWN: Final[Mapping[str, str]] = {}

_REGISTER: dict[str, Check] = {}
_ID = re.compile(r"[A-Z]{3}-[1-9]\d*")


def check(
    check_id: str,
    sentence: str,
    *,
    answers: Iterable[str] = (),
    needs: Iterable[Capability] = (),
    shows: Mapping[str, float] | None = None,
    cost: float = 1.0,
) -> Callable[[Body], Body]:
    """Register the decorated function as a check. Raises ValueError for an id that is taken."""

    if not _ID.fullmatch(check_id) or check_id.split("-")[0] not in Chapter.__members__:
        raise ValueError(f"{check_id!r} is no check id: a chapter, a dash and a number")
    if check_id in _REGISTER or check_id in WITHDRAWN:
        raise ValueError(f"check id {check_id} is taken")

    def register(body: Body) -> Body:
        _REGISTER[check_id] = Check(
            check_id, sentence, body, tuple(answers), tuple(needs), dict(shows or {}), cost
        )
        return body

    return register


def all_checks() -> Mapping[str, Check]:
    """Every check by id, chapter by chapter, each chapter by number."""
    for module in _MODULES:
        importlib.import_module(f"harness.checks.{module}")
    order = list(Chapter)
    ordered = sorted(_REGISTER.values(), key=lambda c: (order.index(c.chapter), c.number))
    return {c.id: c for c in ordered}


def select(only: Iterable[str]) -> list[Check]:
    """The checks named by ids or chapters; all of them for nothing.

    Raises ValueError for a name that is neither, saying what there is.
    """
    checks = all_checks()
    wanted = [name.strip().upper() for name in only if name.strip()]
    if not wanted:
        return list(checks.values())
    chosen: set[str] = set()
    for name in wanted:
        found = {c.id for c in checks.values() if name in (c.id, c.chapter.value)}
        if not found:
            chapters = ", ".join(Chapter)
            raise ValueError(f"no check {name!r}: give ids such as EQV-1 or chapters ({chapters})")
        chosen |= found
    return [c for c in checks.values() if c.id in chosen]
