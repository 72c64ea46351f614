"""Judging text: which tokens a server that shows only text must have chosen.

A text can be cut into tokens in several ways, and the usual one need not be the one that a model
went. So the text is spelled with the model's own choices: at each place its likeliest token, if the
text goes on with it; else another within the band, which is a tie flip; else the text has left what
the model would say. Only text that round-trips can be spelled: one with U+FFFD in it is not judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from harness.oracles.oracle import NotPredictable

if TYPE_CHECKING:
    from harness.oracles.reference_model import Ids, ReferenceModel

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_CONTEXT: Final = 8


@dataclass(slots=True)
class Spelling:
    """The tokens found, their gaps to the likeliest, and where the text left the model, if it did.

    ``wrong_at`` is an index into the text; ``gap`` that of the likeliest token which fits there.
    """

    ids: list[int] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    wrong_at: int | None = None


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
        """Cut ``text`` into at most ``max_tokens`` tokens.

        With ``open_end`` the last token may say more than the text holds (a stop string ends within
        a token). Raises NotPredictable for text that does not round-trip.
        """
        if REPLACEMENT in text.rstrip(REPLACEMENT):
            raise NotPredictable("the text holds bytes that are no characters")
        text = text.rstrip(REPLACEMENT)
        found = Spelling()
        while len(found.ids) < max_tokens and self.text(found.ids) != text:
            room = max_tokens - len(found.ids)
            start = (*self._prompt, *found.ids)
            for token in await self._model.greedy(start, min(room, 16)):
                if not self._fits(found.ids, token, text, open_end):
                    if not await self._other(found, text, open_end):
                        found.wrong_at = _common(self.text([*found.ids, token]), text)
                        return found
                    break
                found.ids.append(token)
                found.gaps.append(0.0)
                said = self.text(found.ids)
                if said == text or (open_end and len(said) >= len(text)):
                    return found
        said = self.text(found.ids)
        if said != text and not (open_end and said.startswith(text)):
            found.wrong_at = _common(said, text)
        return found

    def _fits(self, ids: Sequence[int], token: int, text: str, open_end: bool) -> bool:
        said = self.text([*ids, token])
        return text.startswith(said) or (open_end and said.startswith(text))

    async def _other(self, found: Spelling, text: str, open_end: bool) -> bool:
        """Take the likeliest token of the band with which the text goes on; False if none does."""
        [scores] = await self._model.forced((*self._prompt, *found.ids), ())
        said = len(self.text(found.ids))
        for token, _ in sorted(scores.logprobs.items(), key=lambda row: -row[1]):
            gap = scores.gap(token)
            if gap > self._band:
                return False
            if self._fits(found.ids, token, text, open_end) and (
                len(self.text([*found.ids, token])) > said
            ):
                found.ids.append(token)
                found.gaps.append(gap)
                return True
        return False


def _common(first: str, second: str) -> int:
    """How many characters both begin with."""
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return min(len(first), len(second))
