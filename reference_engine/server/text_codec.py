"""Between text and token ids: the tokenizer of the served model, and decoding token by token.

Decoding one token at a time must give the same characters as decoding all at once. For byte-level
tokenizers (GPT-2, Llama 3, Qwen, the probe) that is exact and cheap: each token is a byte string,
and an incremental UTF-8 decoder holds back at most three bytes of an unfinished character. For any
other tokenizer the last few tokens are decoded again together, the way vLLM and TGI do it.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tokenizers import Tokenizer

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Decoder(Protocol):
    """Turns one choice's token ids into text as they come."""

    def push(self, token_id: int) -> str:
        """The characters that are complete now and were not before; often empty."""

    def flush(self) -> str:
        """What is left at the end: U+FFFD for bytes that never became a character."""


class TextCodec:
    """A `tokenizers` tokenizer with the few operations the server needs.

    ``vocab_size`` is the number of ids that the *model* knows; a tokenizer may know fewer.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        vocab_size: int,
        *,
        chat_template: str | None = None,
        special_texts: Mapping[str, str] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self.vocab_size = vocab_size
        self.chat_template = chat_template
        self.special_texts = dict(special_texts or {})
        added = tokenizer.get_added_tokens_decoder()
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        self._bytes = _byte_table(tokenizer)

    @classmethod
    def load(cls, folder: Path, vocab_size: int) -> TextCodec:
        """Read ``tokenizer.json`` and the chat template of a Hugging Face folder.

        Raises ValueError with one sentence when the folder holds no fast tokenizer.
        """
        from tokenizers import Tokenizer

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ValueError(f"{folder} holds no tokenizer.json: the server needs a fast tokenizer")
        config = _read_json(folder / "tokenizer_config.json")
        template = config.get("chat_template")
        separate = folder / "chat_template.jinja"
        if separate.is_file():
            template = separate.read_text(encoding="utf-8")
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises nothing more special
            raise ValueError(f"{path} is no tokenizer: {error}; copy it again") from error
        return cls(
            tokenizer,
            vocab_size,
            chat_template=template if isinstance(template, str) else None,
            special_texts=_special_texts(config),
        )

    def encode(self, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        """The ids of a text, with the tokens that the model expects around it."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The whole text of a sequence of ids; the same as pushing them one by one."""
        decoder = self.decoder(skip_special_tokens=skip_special_tokens)
        return "".join([*(decoder.push(i) for i in ids), decoder.flush()])

    def decoder(self, *, skip_special_tokens: bool = True) -> Decoder:
        """A fresh decoder for one choice."""
        skipped = self.special_ids if skip_special_tokens else frozenset[int]()
        if self._bytes is not None:
            return _ByteDecoder(self._bytes, skipped)
        return _WindowDecoder(self._tokenizer, skip_special_tokens)

    def token_bytes(self, token_id: int) -> bytes:
        """What one token stands for by itself, in bytes; empty for an id without text."""
        if self._bytes is not None:
            return self._bytes.get(token_id, b"")
        return self._tokenizer.decode([token_id], skip_special_tokens=False).encode()

    def token_text(self, token_id: int) -> str:
        r"""One token as text; a token that is no whole character reads ``bytes:\xe2\x82``.

        The spelling is that of the OpenAI completions API. It keeps two different ids apart that
        would both read U+FFFD.
        """
        raw = self.token_bytes(token_id)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


class _ByteDecoder:
    """Exact and incremental: tokens are bytes, characters come out as soon as they are whole."""

    def __init__(self, table: Mapping[int, bytes], skipped: frozenset[int]) -> None:
        self._table = table
        self._skipped = skipped
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        if token_id in self._skipped:
            return ""
        return self._utf8.decode(self._table.get(token_id, b""))

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)


class _WindowDecoder:
    """For tokenizers whose text depends on the neighbours: decode a short window twice.

    The window starts at the last token whose text was complete. Text that ends in U+FFFD may be an
    unfinished character and is held back, but for at most ``_MAX_HELD`` tokens.
    """

    _MAX_HELD = 6

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._window: list[int] = []
        self._shown_tokens = 0
        self._shown_text = ""

    def push(self, token_id: int) -> str:
        self._window.append(token_id)
        text = self._decode(self._window)
        held = len(self._window) - self._shown_tokens
        if text.endswith(REPLACEMENT) and held <= self._MAX_HELD:
            return ""
        delta = text[len(self._shown_text) :]
        del self._window[: self._shown_tokens]
        self._shown_tokens = len(self._window)
        self._shown_text = self._decode(self._window)
        return delta

    def flush(self) -> str:
        return self._decode(self._window)[len(self._shown_text) :]

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip)


def _byte_table(tokenizer: Tokenizer) -> dict[int, bytes] | None:
    """Token id to bytes when the tokenizer is byte-level, else None."""
    decoder = json.loads(tokenizer.to_str()).get("decoder") or {}
    if decoder.get("type") != "ByteLevel":
        return None
    byte_of = {char: byte for byte, char in _byte_alphabet().items()}
    table = {}
    for text, token_id in tokenizer.get_vocab(with_added_tokens=True).items():
        if all(char in byte_of for char in text):
            table[token_id] = bytes(byte_of[char] for char in text)
        else:
            table[token_id] = text.encode()
    return table


def _byte_alphabet() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte, as the ByteLevel decoder knows it."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in alphabet)
    alphabet.update({byte: chr(256 + rank) for rank, byte in enumerate(others)})
    return alphabet


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}; copy it again") from error
    return document if isinstance(document, dict) else {}


def _special_texts(config: Mapping[str, Any]) -> dict[str, str]:
    """``bos_token`` and the like, which chat templates refer to by name."""
    texts = {}
    for name, value in config.items():
        if name.endswith("_token"):
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str):
                texts[name] = text
    return texts
