"""Prompts for a trained model: words of which each is one token, so that lengths are exact."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from harness.oracles.oracle import Prompt

if TYPE_CHECKING:
    from harness.oracles.reference_model import Ids
    from reference_engine.server.text_codec import TextCodec

_WORD: Final = re.compile(r" [a-z]{3,9}")
_PRINTABLE: Final = re.compile(r"[ -~]")
_ENOUGH_WORDS: Final = 64
_MOST_WORDS: Final = 2000


class ReferencePrompts:
    """Text and ids of one tokenizer. ``bos`` is put in front where the server puts one."""

    def __init__(self, codec: TextCodec, vocab_size: int, bos: int | None = None) -> None:
        self._codec = codec
        leading = codec.encode("")
        self._bos: Ids = leading if leading else (bos,) if bos is not None else ()
        self._adds_bos = bool(leading)
        self.bos_tokens = len(self._bos)
        texts = {i: codec.token_text(i) for i in range(vocab_size) if i not in codec.special_ids}
        words = self._single(t for t in texts.values() if _WORD.fullmatch(t))
        self._words = (
            words
            if len(words) >= _ENOUGH_WORDS
            else self._single(t for t in texts.values() if _PRINTABLE.fullmatch(t))
        )
        if len(self._words) < 2:
            raise ValueError("the tokenizer has no tokens of plain text to make prompts from")

    def encode(self, text: str) -> Ids:
        """The ids of a prompt, with the token that the server puts in front."""
        ids = self._codec.encode(text)
        return ids if self._adds_bos else (*self._bos, *ids)

    def prompt(self, tokens: int, content: str) -> Prompt:
        """``tokens`` tokens in all, drawn by ``content``."""
        drawn = random.Random(content)
        wanted = max(1, tokens - self.bos_tokens)
        words = drawn.choices(self._words, k=wanted)
        text = "".join(words)
        ids = self.encode(text)
        for _ in range(8):  # letters may merge: then a token is drawn for each that was lost
            if len(ids) >= tokens:
                break
            words += drawn.choices(self._words, k=tokens - len(ids))
            text = "".join(words)
            ids = self.encode(text)
        return Prompt(ids, text)

    def _single(self, texts: Iterable[str]) -> list[str]:
        """Those texts that are one token by themselves."""
        single = []
        for text in texts:
            if len(self._codec.encode(text)) == 1 + (self.bos_tokens if self._adds_bos else 0):
                single.append(text)
                if len(single) == _MOST_WORDS:
                    break
        return single
