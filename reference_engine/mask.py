"""The dense mask that a ragged batch means: the specification of attention, and its picture.

No kernel of the engine reads this matrix; it would have one entry for every pair of tokens. It
exists so that the metadata can be tested against a sentence (a token sees the tokens of its own
request that are not later than itself) and shown to people.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from reference_engine.batch import RaggedBatch


@dataclass(frozen=True, slots=True)
class DenseMask:
    """``visible``: [rows, keys], True where a batch row sees a key.

    Keys are the contexts of the batch's sequences one after another: key ``k`` belongs to sequence
    ``key_sequences[k]``, stands at position ``key_positions[k]`` and lies in cache slot
    ``key_slots[k]``. Row ``r`` belongs to sequence ``row_sequences[r]``.
    """

    visible: Tensor
    row_sequences: Tensor
    row_positions: Tensor
    key_sequences: Tensor
    key_positions: Tensor
    key_slots: Tensor


def dense_mask(batch: RaggedBatch, window: int | None = None, group: int = 0) -> DenseMask:
    """Spell out what ``batch`` means for a layer with this sliding window (None: full attention).

    ``group`` is the layer's page group, by whose block tables keys are found.

    A window of ``w`` shows a token itself and the ``w - 1`` tokens before it.
    """
    row_sequences: list[int] = []
    key_sequences: list[int] = []
    key_positions: list[int] = []
    key_slots: list[int] = []
    size = batch.page_size
    for index, sequence in enumerate(batch.sequences):
        row_sequences += [index] * sequence.count
        key_sequences += [index] * sequence.context
        key_positions += range(sequence.context)
        key_slots += [
            sequence.block_tables[group][p // size] * size + p % size
            for p in range(sequence.context)
        ]
    rows, keys = torch.tensor(row_sequences), torch.tensor(key_sequences)
    at, key_at = torch.tensor(batch.positions), torch.tensor(key_positions)
    visible = (rows[:, None] == keys[None, :]) & (key_at[None, :] <= at[:, None])
    if window is not None:
        visible &= key_at[None, :] > at[:, None] - window
    return DenseMask(visible, rows, at, keys, key_at, torch.tensor(key_slots))
