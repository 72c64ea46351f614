"""Judging text: which tokens a server that shows only text must have chosen.

A text can be cut into tokens in several ways, and the usual one need not be the one that a model
went. So the text is spelled with the model's own choices: at each place its likeliest token, if the
text goes on with it; else another within the band, which is a tie flip. Where several near-ties go
on with the text ("a" and "additional"), a spelling that comes to nothing goes back to the last of
them. If none leads to the end, the text has left what the model would say. Only text that
round-trips can be spelled: one with U+FFFD in it is not judged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from harness.oracles.oracle import NotPredictable

if TYPE_CHECKING:
    from harness.oracles.reference_model import Ids, ReferenceModel, TokenScores

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
MOST_SPELLINGS: Final = 32
"""So many ways are tried, the likeliest first, before a text is given up."""

_CONTEXT: Final = 8


@dataclass(slots=True)
class Spelling:
    """The tokens found, their gaps to the likeliest, and where the text left the model, if it did.

    ``wrong_at`` is an index into the text.
    """

    ids: list[int] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    wrong_at: int | None = None

    def to(self, place: int) -> Spelling:
        """The first ``place`` tokens."""
        return Spelling(self.ids[:place], self.gaps[:place])


class Speller:
    """Spells answers to one prompt. ``band``: the gap up to which a token is a near-tie."""

    def __init__(self, model: ReferenceModel, prompt: Ids, band: float) -> None:
        self._model = model
        self._prompt = prompt
        self._band = band
        self._before = prompt[-_CONTEXT:]
        self._head = model.codec.decode(self._before)

    def text(self, ids: Sequence[int]) -> str:
        """The text that answer tokens add to the prompt."""
        said = self._model.codec.decode((*self._before, *ids))[len(self._head) :]
        return said.rstrip(REPLACEMENT)  # a character that is not whole yet

    async def spell(self, text: str, max_tokens: int, *, open_end: bool = False) -> Spelling:
        """Cut ``text`` into at most ``max_tokens`` tokens: the first spelling that there is.

        With ``open_end`` the last token may say more than the text holds (a stop string ends within
        a token). Where there is none: the one that came furthest. Raises NotPredictable for text
        that does not round-trip.
        """
        best: Spelling | None = None
        async for found in self.spellings(text, max_tokens, open_end=open_end):
            if found.wrong_at is None:
                return found
            if best is None or found.wrong_at > (best.wrong_at or 0):
                best = found
        return best or Spelling()

    async def spellings(
        self, text: str, max_tokens: int, *, open_end: bool = False
    ) -> AsyncIterator[Spelling]:
        """Each way to spell the text, and each that came to nothing; see ``spell``."""
        if REPLACEMENT in text.rstrip(REPLACEMENT):
            raise NotPredictable("the text holds bytes that are no characters")
        text = text.rstrip(REPLACEMENT)
        begun = [Spelling()]
        for _ in range(MOST_SPELLINGS):
            if not begun:
                return
            start = begun.pop()
            known = len(start.ids)
            found = await self._follow(start, text, max_tokens, open_end)
            yield found
            begun += await self._forks(found, known, text, open_end)

    async def _follow(
        self, found: Spelling, text: str, max_tokens: int, open_end: bool
    ) -> Spelling:
        """Go on with the likeliest token that fits, to the end of the text or of what fits."""
        while len(found.ids) < max_tokens and not self._over(found.ids, text, open_end):
            room = max_tokens - len(found.ids)
            start = (*self._prompt, *found.ids)
            for token in await self._model.greedy(start, min(room, 16)):
                if not self._fits(found.ids, token, text, open_end):
                    [scores] = await self._model.forced((*self._prompt, *found.ids), ())
                    others = self._near_ties(scores, found.ids, text, open_end)
                    if not others:
                        found.wrong_at = _common(self.text([*found.ids, token]), text)
                        return found
                    token, gap = others[0]
                    found.ids.append(token)
                    found.gaps.append(gap)
                    break
                found.ids.append(token)
                found.gaps.append(0.0)
                if self._over(found.ids, text, open_end):
                    return found
        if not self._over(found.ids, text, open_end):
            found.wrong_at = _common(self.text(found.ids), text)
        return found

    async def _forks(
        self, found: Spelling, known: int, text: str, open_end: bool
    ) -> list[Spelling]:
        """The other near-ties that fit, from token ``known`` on; the latest and likeliest last."""
        rows = await self._model.forced(
            (*self._prompt, *found.ids[:known]), tuple(found.ids[known:])
        )
        forks = []
        for place, scores in enumerate(rows[:-1], known):
            others = self._near_ties(scores, found.ids[:place], text, open_end)
            for token, gap in reversed(others):
                if token != found.ids[place]:
                    begun = found.to(place)
                    forks.append(Spelling([*begun.ids, token], [*begun.gaps, gap]))
        return forks

    def _near_ties(
        self, scores: TokenScores, ids: Sequence[int], text: str, open_end: bool
    ) -> list[tuple[int, float]]:
        """The tokens of the band with which the text goes on, and their gaps; likeliest first."""
        said = len(self.text(ids))
        found = []
        for token, _ in sorted(scores.logprobs.items(), key=lambda row: -row[1]):
            gap = scores.gap(token)
            if gap > self._band:
                break
            longer = len(self.text([*ids, token])) > said
            if longer and self._fits(ids, token, text, open_end):
                found.append((token, gap))
        return found

    def _over(self, ids: Sequence[int], text: str, open_end: bool) -> bool:
        said = self.text(ids)
        return said == text or (open_end and said.startswith(text))

    def _fits(self, ids: Sequence[int], token: int, text: str, open_end: bool) -> bool:
        said = self.text([*ids, token])
        return text.startswith(said) or (open_end and said.startswith(text))


def _common(first: str, second: str) -> int:
    """How many characters both begin with."""
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return min(len(first), len(second))
