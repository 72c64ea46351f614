"""Ids to text as they come, never splitting a character."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Detokenizer:
    """Adds one id at a time and returns the text that is now certain.

    A text that ends in the replacement character may be half a character, so it is held back until
    the next id completes it.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._shown = 0

    def add(self, token_id: int) -> str:
        """The new text, "" if there is none yet."""
        self._ids.append(token_id)
        text = self._decode(self._ids)
        if text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        new = text[self._shown :]
        self._shown = len(text)
        return new
