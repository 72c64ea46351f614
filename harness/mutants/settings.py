"""How a fault is served and judged: server settings under which defects can show, and chapters.

A defect in preemption cannot show on a server that never preempts, and one of a sliding window not
on a model without one. So each root cause names the servers in which its feature is at work, and a
fault that survives one of them is tried in the next. The chapters that a root cause belongs to run
first, so that the number of requests to detection is that of the chapter; the checks themselves
know nothing of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from harness.checks.registry import Chapter


@dataclass(frozen=True, slots=True)
class Setting:
    """A probe variant and the engine's own settings."""

    name: str
    variant: str
    engine: Mapping[str, Any] = field(default_factory=dict)


DEFAULT: Final = Setting("default", "eos")
SMALL_POOL: Final = Setting("small-pool", "eos", {"num_pages": 72, "token_budget": 48})
WINDOW: Final = Setting("window", "window")
ALL_WINDOWED: Final = Setting("mistral-window", "mistral-window")
SPLIT_CHARACTERS: Final = Setting("split-characters", "utf8")
KNOWN_ODDS: Final = Setting("known-odds", "dice")
PADDED_STEPS: Final = Setting("padded-steps", "eos", {"pad_decodes": True})
TWO_SLOTS: Final = Setting("two-slots", "eos", {"max_num_seqs": 2})
SETTINGS: Final = (
    DEFAULT,
    SMALL_POOL,
    WINDOW,
    ALL_WINDOWED,
    SPLIT_CHARACTERS,
    KNOWN_ODDS,
    PADDED_STEPS,
    TWO_SLOTS,
)
HEALTHY: Final = (DEFAULT, SMALL_POOL)
"""The servers without a fault that the suite must not accuse, in turn."""

# The servers in which a feature is at work, by a word of the root cause; else the two commonest.
_SERVERS: Final[Mapping[str, tuple[Setting, ...]]] = {
    "prefix cache": (SMALL_POOL, KNOWN_ODDS, DEFAULT),
    "sliding window": (WINDOW, ALL_WINDOWED),
    "preemption": (SMALL_POOL,),
    "padding": (DEFAULT, PADDED_STEPS, SMALL_POOL),
    "stop strings": (DEFAULT, SPLIT_CHARACTERS),
    "technique": (DEFAULT, TWO_SLOTS),
    "n > 1": (DEFAULT, KNOWN_ODDS),
    "wrong row": (DEFAULT, KNOWN_ODDS),
    "parameters": (DEFAULT, KNOWN_ODDS),
    "seeds": (DEFAULT, KNOWN_ODDS),
}

# The chapters of each root cause, by a word of its name.
_CHAPTERS: Final[Mapping[str, tuple[Chapter, ...]]] = {
    "prefix cache": (Chapter.CCH, Chapter.ISO, Chapter.EQV, Chapter.SCH),
    "wrong row": (Chapter.SMP,),
    "parameters": (Chapter.SMP, Chapter.LEN),
    "stop strings": (Chapter.STR,),
    "length": (Chapter.LEN, Chapter.STR),
    "sliding window": (Chapter.ISO, Chapter.EQV),
    "logprobs": (Chapter.LOG,),
    "preemption": (Chapter.SCH,),
    "padding": (Chapter.ISO, Chapter.EQV, Chapter.CCH),
    "cancel": (Chapter.CAN,),
    "chunk": (Chapter.EQV, Chapter.LOG),
    "starvation": (Chapter.SCH, Chapter.TEC),
    "position": (Chapter.EQV, Chapter.ISO),
    "request ids": (Chapter.API, Chapter.ISO, Chapter.SMP),
    "seeds": (Chapter.SMP,),
    "overlap": (Chapter.EQV, Chapter.SCH),
    "technique": (Chapter.TEC,),
}


TIMED: Final = frozenset({Chapter.TEC})
"""Chapters whose verdicts rest on how long things take, which a busy machine changes too."""


def may_kill(chapter: Chapter, group: str) -> bool:
    """Whether a failure in this chapter counts against a fault of this root cause.

    One that rests on timing counts only where the root cause names its chapter: elsewhere it says
    more of the machine than of the fault.
    """
    return chapter not in TIMED or chapter in chapters_of(group)


def chapters_of(group: str) -> tuple[Chapter, ...]:
    """The chapters that answer for a root-cause group; empty for a group that is not known."""
    lowered = group.lower()
    return next((chapters for word, chapters in _CHAPTERS.items() if word in lowered), ())


def settings_of(group: str) -> tuple[Setting, ...]:
    """The servers on which a defect of this root cause can show, the likeliest first."""
    lowered = group.lower()
    found = (settings for word, settings in _SERVERS.items() if word in lowered)
    return next(found, (DEFAULT, SMALL_POOL))
