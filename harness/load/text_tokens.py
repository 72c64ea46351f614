"""The client's own ledger: tokens of the whole text, counted with the model's tokenizer.

The whole text, never chunk by chunk: a tokenizer merges across chunks, so adding up the tokens of
the pieces counts too many.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.cli.errors import UserError
from harness.transcript import RequestTranscript


def load_tokenizer(path: Path) -> Any:
    """The tokenizer of a tokenizer.json or of its folder. Raises UserError."""
    from tokenizers import Tokenizer

    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception for every kind of bad file
        raise UserError(f"{file} is no tokenizer.json: {error}") from None


def count_text_tokens(requests: Iterable[RequestTranscript], tokenizer: Any) -> None:
    """Set ``text_tokens`` of every request with text, by a tokenizer of `load_tokenizer`."""
    for request in requests:
        texts = [choice.text for choice in request.choices.values()]
        if any(texts):
            request.text_tokens = sum(
                len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts
            )
