"""Token ledgers of one request, kept apart: what the server says, what arrived, what we count."""

from __future__ import annotations

from dataclasses import dataclass

from harness.transcript import RequestTranscript


@dataclass(frozen=True, slots=True)
class TokenLedger:
    """Output tokens by the server's usage, by ids, by the client's tokenizer; and chunks.

    None where that count isn't known. The requested length is in none of them.
    """

    server: int | None
    ids: int | None
    text: int | None
    chunks: int

    @classmethod
    def of(cls, request: RequestTranscript) -> TokenLedger:
        """The ledgers of one request, summed over its choices."""
        ids: int | None = 0
        chunks = 0
        for choice in request.choices.values():
            chunks += len(choice.chunks)
            for chunk in choice.chunks:
                ids = None if ids is None or chunk.tokens is None else ids + chunk.tokens
        if chunks == 0:
            ids = None
        server = request.usage.completion_tokens if request.usage else None
        return cls(server, ids, request.text_tokens, chunks)

    @property
    def output_tokens(self) -> int | None:
        """The headline: the server's count; else the ids that arrived; else the text's tokens."""
        return next((n for n in (self.server, self.ids, self.text) if n is not None), None)

    @property
    def source(self) -> str | None:
        """Which ledger the headline is from, in words; None where nobody counts."""
        if self.server is not None:
            return "the server's usage"
        if self.ids is not None:
            return "token ids"
        return None if self.text is None else "the client's tokenizer"

    @property
    def agrees(self) -> bool:
        """Whether the known counts of tokens are the same.

        The client's own count may be lower by one for each choice, since an end-of-sequence token
        is counted by the server and has no text.
        """
        if self.server is not None and self.ids is not None and self.server != self.ids:
            return False
        known = self.output_tokens
        return known is None or self.text is None or known - 1 <= self.text <= known
