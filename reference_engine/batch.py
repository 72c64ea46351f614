"""The ragged batch: the tokens of many requests in one row, without a batch axis or padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchSequence:
    """What one step computes of one sequence: ``count`` tokens from position ``start`` on.

    ``block_tables``: for each page group the page numbers in order of position, covering at least
    ``start + count`` tokens.
    ``wants_logits``: how many of the chunk's last positions need logits (0 for a chunk that does
    not reach the end of the known tokens).
    """

    token_ids: tuple[int, ...]
    start: int
    block_tables: Sequence[Sequence[int]]
    wants_logits: int = 0

    @property
    def count(self) -> int:
        """Tokens computed in this step."""
        return len(self.token_ids)

    @property
    def context(self) -> int:
        """Tokens whose keys the last of them sees, itself included."""
        return self.start + len(self.token_ids)


@dataclass(frozen=True, slots=True)
class RaggedBatch:
    """The metadata of one step.

    Row ``r`` of the batch holds token ``token_ids[r]`` at absolute position ``positions[r]``; its
    key and value go to slot ``slots[g][r]`` in the layers of page group ``g`` (page number times
    page size plus offset). The rows of sequence ``i`` are ``cu_seqlens[i]`` up to
    ``cu_seqlens[i + 1]``. ``logit_rows`` are those whose logits are wanted.
    """

    sequences: tuple[BatchSequence, ...]
    page_size: int
    token_ids: tuple[int, ...]
    positions: tuple[int, ...]
    slots: tuple[tuple[int, ...], ...]
    cu_seqlens: tuple[int, ...]
    logit_rows: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Rows of the batch."""
        return len(self.token_ids)


class BatchBuilder:
    """Concatenates sequences into a `RaggedBatch`."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size

    def positions(self, sequence: BatchSequence) -> list[int]:
        """The absolute positions of the sequence's tokens in this step."""
        return list(range(sequence.start, sequence.context))

    def slots(self, sequence: BatchSequence, group: int) -> list[int]:
        """Where the keys and values of the sequence's tokens are stored."""
        table, size = sequence.block_tables[group], self._page_size
        return [table[p // size] * size + p % size for p in range(sequence.start, sequence.context)]

    def build(self, sequences: Sequence[BatchSequence]) -> RaggedBatch:
        """One row of tokens, in the order of ``sequences``, of which there is at least one."""
        token_ids: list[int] = []
        positions: list[int] = []
        groups = len(sequences[0].block_tables)
        slots: list[list[int]] = [[] for _ in range(groups)]
        cu_seqlens = [0]
        logit_rows: list[int] = []
        for sequence in sequences:
            token_ids.extend(sequence.token_ids)
            positions.extend(self.positions(sequence))
            for group in range(groups):
                slots[group].extend(self.slots(sequence, group))
            end = len(token_ids)
            cu_seqlens.append(end)
            logit_rows.extend(range(end - sequence.wants_logits, end))
        return RaggedBatch(
            sequences=tuple(sequences),
            page_size=self._page_size,
            token_ids=tuple(token_ids),
            positions=tuple(positions),
            slots=tuple(tuple(of_group) for of_group in slots),
            cu_seqlens=tuple(cu_seqlens),
            logit_rows=tuple(logit_rows),
        )
