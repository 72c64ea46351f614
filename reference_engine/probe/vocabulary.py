"""The vocabulary: which bytes each id stands for, and the symbol and sign bits of each id.

Ids: PAD, BOS, EOS, UNDEFINED, then the 256 bytes, then the texts of the alphabet that are longer
than a byte, then spare tokens that never appear in an answer. Output tokens are those whose bytes
are in the alphabet: their shown symbol bits and sign bits are their place in it. Everything else
that a symbol needs comes from a stable hash, so any text is a prompt.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from reference_engine.probe.config import (
    BOS_ID,
    EOS_ID,
    FIRST_BYTE_ID,
    PAD_ID,
    UNDEFINED_ID,
    ProbeConfig,
)

SPECIAL_TEXTS: Final = {
    PAD_ID: "<|pad|>",
    BOS_ID: "<|bos|>",
    EOS_ID: "<|eos|>",
    UNDEFINED_ID: "<|undefined|>",
}
_SPECIAL_IDS: Final = {text.encode(): token_id for token_id, text in SPECIAL_TEXTS.items()}
_SPECIAL_PATTERN: Final = re.compile(b"|".join(re.escape(text) for text in _SPECIAL_IDS))
_SPARE_TOKENS: Final = 28


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """``texts[id]``: bytes; ``symbols[id]``: symbol; ``signs[id]``: its sign bits as one number.

    ``output_ids[shown << sign_bits | signs]`` is the output token that shows these bits.
    """

    texts: tuple[bytes, ...]
    symbols: tuple[int, ...]
    signs: tuple[int, ...]
    output_ids: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many ids, a multiple of 32."""
        return len(self.texts)


@lru_cache(maxsize=64)
def vocabulary(config: ProbeConfig) -> Vocabulary:
    """The vocabulary that ``config`` means. ``output_ids`` is in the order of the alphabet."""
    texts = [text.encode() for text in SPECIAL_TEXTS.values()]
    texts += [bytes([value]) for value in range(256)]
    texts += [text for text in config.alphabet if len(text) > 1]
    spare = _SPARE_TOKENS + -(len(texts) + _SPARE_TOKENS) % 32
    texts += [f"<|spare-{index}|>".encode() for index in range(spare)]
    place = {text: index for index, text in enumerate(config.alphabet)}
    symbols, signs = [], []
    for token_id, text in enumerate(texts):
        digest = hashlib.sha256(b"isobatch" + text).digest()
        symbol, sign = digest[0] & config.symbol_mask, digest[1] & ((1 << config.sign_bits) - 1)
        if text in place:
            shown, sign = divmod(place[text], 1 << config.sign_bits)
            symbol = symbol >> config.shown_bits << config.shown_bits | shown
        if token_id == BOS_ID:
            symbol, sign = 0, (1 << config.sign_bits) - 1
        symbols.append(symbol)
        signs.append(sign)
    ids = {text: token_id for token_id, text in enumerate(texts)}
    return Vocabulary(
        tuple(texts), tuple(symbols), tuple(signs), tuple(ids[text] for text in config.alphabet)
    )


@lru_cache(maxsize=64)
def _merged(config: ProbeConfig) -> dict[bytes, int]:
    table = vocabulary(config)
    return {table.texts[i]: i for i in table.output_ids if len(table.texts[i]) > 1}


def encode_text(config: ProbeConfig, text: str | bytes) -> list[int]:
    """The ids of ``text`` after BOS: what the exported tokenizer gives.

    The texts of special tokens (``<|eos|>``) become those tokens, as tokenizers do.
    """
    raw = text.encode() if isinstance(text, str) else text
    ids = [BOS_ID]
    start = 0
    for match in _SPECIAL_PATTERN.finditer(raw):
        ids += _encode_bytes(config, raw[start : match.start()])
        ids.append(_SPECIAL_IDS[match.group()])
        start = match.end()
    return ids + _encode_bytes(config, raw[start:])


def _encode_bytes(config: ProbeConfig, raw: bytes) -> list[int]:
    merged = _merged(config)
    if not merged:
        return [FIRST_BYTE_ID + value for value in raw]
    ids, at = [], 0
    while at < len(raw):
        pair = merged.get(raw[at : at + 2])
        ids.append(FIRST_BYTE_ID + raw[at] if pair is None else pair)
        at += 1 if pair is None else 2
    return ids


def decode_tokens(config: ProbeConfig, ids: Sequence[int]) -> bytes:
    """The bytes of ``ids`` without PAD, BOS and EOS.

    UNDEFINED stays visible. Raises ValueError for an id that is not in the vocabulary.
    """
    texts = vocabulary(config).texts
    for token_id in ids:
        if not 0 <= token_id < len(texts):
            raise ValueError(f"id {token_id} is not in the vocabulary of {len(texts)} ids")
    return b"".join(texts[i] for i in ids if i not in (PAD_ID, BOS_ID, EOS_ID))
