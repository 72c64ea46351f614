"""Decode batches padded to a few fixed sizes, as captured CUDA graphs need them.

A captured graph has one batch size. A step of decodes is filled up to the next bucket with rows
that belong to nobody: token 0 at position 0, whose keys and values go to the *trash page*, a page
behind the pool that no block table of a request ever names. Padding rows come after the real ones
and nobody asks for their logits. A row depends on itself alone, so the real rows keep their bits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from reference_engine.batch import BatchSequence


def bucket_sizes(max_num_seqs: int) -> tuple[int, ...]:
    """1, 2, 4, then multiples of 8, the last of which holds ``max_num_seqs``."""
    small = [size for size in (1, 2, 4) if size < max_num_seqs]
    multiples = range(8, max(8, -(-max_num_seqs // 8) * 8) + 1, 8)
    return (*small, *multiples) if max_num_seqs > 4 else (*small, max_num_seqs)


class PaddedBuckets:
    """Fills up steps in which every sequence decodes; other steps stay as they are.

    ``trash_tables``: for each page group the block table of a padding row, the trash page alone.
    """

    def __init__(self, max_num_seqs: int, trash_tables: Sequence[Sequence[int]]) -> None:
        self.sizes = bucket_sizes(max_num_seqs)
        self._padding = BatchSequence((0,), 0, trash_tables)
        self.padding_rows = 0

    def pad(self, sequences: Sequence[BatchSequence]) -> list[BatchSequence]:
        """The step's sequences, then padding up to a bucket."""
        rows = len(sequences)
        decodes = all(s.count == 1 for s in sequences)
        if not decodes or rows > self.sizes[-1]:
            return list(sequences)
        missing = self.sizes[bisect_left(self.sizes, rows)] - rows
        self.padding_rows += missing
        return [*sequences, *[self._padding] * missing]
