"""Prompt contents: token ids from an alphabet the caller names, or words where ids aren't taken.

A prompt's content depends only on the seed and on its number, never on how many others there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from workloads.seeded import stream

_WORDS: Final = """
time year people way day man thing woman life child world school state family student group country
problem hand part place case week company system program question work night point home water room
mother area money story fact month lot right study book eye job word business issue side kind head
house service friend father power hour game line end member law car city
""".split()  # noqa: SIM905


class Prompts(Protocol):
    """Makes the content of prompts."""

    def prompt(self, seed: int, number: int, tokens: int) -> tuple[int, ...] | str:
        """Prompt ``number`` of about (ids: exactly) ``tokens`` tokens."""


@dataclass(frozen=True, slots=True)
class TokenAlphabet:
    """Token ids to draw prompts from, and the id that must stand first, if any."""

    ids: tuple[int, ...]
    bos_id: int | None = None

    def prompt(self, seed: int, number: int, tokens: int) -> tuple[int, ...]:
        """Exactly ``tokens`` ids, the first of them ``bos_id`` where there is one."""
        rng = stream(seed, f"prompt/{number}")
        head = () if self.bos_id is None else (self.bos_id,)
        body = rng.choices(self.ids, k=max(0, tokens - len(head)))
        return (*head, *body)


@dataclass(frozen=True, slots=True)
class Words:
    """Common English words, one for each token asked for: usual tokenizers give about as many."""

    def prompt(self, seed: int, number: int, tokens: int) -> str:
        """``tokens`` words."""
        return " ".join(stream(seed, f"prompt/{number}").choices(_WORDS, k=max(1, tokens)))
