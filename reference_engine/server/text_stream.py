"""The text of one choice as it grows: characters whole, stop strings cut before they are shown.

A stop string ends the text at its first occurrence: the one that is *complete* first, and among
those complete at the same character the longest. That does not depend on how tokens or steps cut
the text. Characters that may still turn out to begin a stop string are held back. With
``min_tokens``, an occurrence counts only when its last character comes from a later token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reference_engine.server.text_codec import Decoder


@dataclass(frozen=True, slots=True)
class TextDelta:
    """New text of a choice; ``stop`` is the stop string that ended it, if one did."""

    text: str
    stop: str | None = None


class TextStream:
    """Feeds a decoder and releases text that no stop string can take back.

    ``decoded_chars`` counts the characters that tokens have completed, shown or held.
    """

    def __init__(
        self,
        decoder: Decoder,
        stops: Sequence[str] = (),
        *,
        min_tokens: int = 0,
        include_stop: bool = False,
    ) -> None:
        self._decoder = decoder
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._min_tokens = min_tokens
        self._include_stop = include_stop
        self._held = ""
        self._tokens = 0
        self.decoded_chars = 0

    @property
    def held_text(self) -> str:
        """The characters that wait because a stop string may begin there."""
        return self._held

    @property
    def held_chars(self) -> int:
        """How many characters wait."""
        return len(self._held)

    def push(self, token_id: int) -> TextDelta:
        """Add one token. After a delta with ``stop`` set the stream takes no more."""
        self._tokens += 1
        return self._release(self._decoder.push(token_id))

    def finish(self) -> TextDelta:
        """The end by length or end-of-sequence: whatever was held back comes out."""
        delta = self._release(self._decoder.flush())
        if delta.stop is not None:
            return delta
        held, self._held = self._held, ""
        return TextDelta(delta.text + held)

    def _release(self, new: str) -> TextDelta:
        self.decoded_chars += len(new)
        if not self._stops:
            return TextDelta(new)
        text = self._held + new
        if self._tokens > self._min_tokens:
            found = self._first_stop(text, first_end=len(self._held) + 1)
            if found is not None:
                start, stop = found
                self._held = ""
                return TextDelta(text[: start + len(stop) * self._include_stop], stop)
        keep = self.unsafe_suffix(text)
        shown = len(text) - keep
        self._held = text[shown:]
        return TextDelta(text[:shown])

    def _first_stop(self, text: str, first_end: int) -> tuple[int, str] | None:
        """The start of the stop string that is complete first, at or after ``first_end``."""
        best: tuple[int, int, str] | None = None
        for stop in self._stops:
            start = text.find(stop, max(0, first_end - len(stop)))
            if start >= 0:
                found = (start + len(stop), start, stop)
                best = found if best is None else min(best, found)
        return None if best is None else (best[1], best[2])

    def unsafe_suffix(self, text: str) -> int:
        """The length of the longest end of ``text`` with which some stop string begins."""
        for length in range(min(len(text), self._longest - 1), 0, -1):
            end = text[-length:]
            if any(len(stop) > length and stop.startswith(end) for stop in self._stops):
                return length
        return 0
