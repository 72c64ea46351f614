"""Attention by compiled loops over the paged cache: nothing is gathered, padded or masked.

A row's keys are the cache slots of its positions, in order. Its result depends on them and their
number alone, so page size, chunk cuts and batch mates cannot move a bit.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reference_engine import cpu_kernels
from reference_engine.attention.backend import KeyValueSource
from reference_engine.attention.decode_tables import DecodeTables
from reference_engine.batch import RaggedBatch

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """Batch row ``r`` sees the cache slots ``slots[begins[r]:ends[r]]``.

    ``slots`` lists the slots of each sequence's pages one after another, whole pages.
    """

    slots: Ints
    begins: Ints
    ends: Ints


class RowAttention:
    """The backend for CPU and fp32."""

    name = "rows"
    reads_hidden_keys = False
    page_multiple = 1

    def plan(self, batch: RaggedBatch, window: int | None, group: int) -> KeyRanges:
        """Which slots every row of ``batch`` sees."""
        size = batch.page_size
        pages: list[int] = []
        offsets = []
        for sequence in batch.sequences:
            offsets.append(len(pages) * size)
            pages.extend(sequence.block_tables[group][: -(-sequence.context // size)])
        slots = (np.array(pages)[:, None] * size + np.arange(size)[None, :]).reshape(-1)
        positions = np.array(batch.positions)
        first_key = np.repeat(offsets, np.diff(batch.cu_seqlens))
        lowest = 0 if window is None else np.maximum(0, positions - window + 1)
        return KeyRanges(slots, first_key + lowest, first_key + positions + 1)

    def plan_decodes(self, tables: DecodeTables, window: int | None, group: int) -> KeyRanges:
        """The same from fixed tables: one row a sequence, whole tables."""
        table, size = tables.block_tables[group].numpy(), tables.page_size
        slots = (table.astype(np.int64)[:, :, None] * size + np.arange(size)).reshape(-1)
        positions = tables.positions.numpy().astype(np.int64)
        first_key = np.arange(table.shape[0]) * table.shape[1] * size
        lowest = 0 if window is None else np.maximum(0, positions - window + 1)
        return KeyRanges(slots, first_key + lowest, first_key + positions + 1)

    def attend(
        self,
        plan: KeyRanges,
        source: KeyValueSource,
        layer: int,
        queries: Tensor,
        *,
        scaling: float,
        softcap: float | None,
    ) -> Tensor:
        """See `AttentionBackend.attend`."""
        keys, values = (x.numpy() for x in source.rows(layer))
        q = (queries.transpose(0, 1) * scaling).contiguous()
        out = torch.empty_like(q)
        q_rows, out_rows = q.numpy(), out.numpy()

        def attend_part(part: slice) -> None:
            cpu_kernels.attend_rows(
                out_rows[part],
                q_rows[part],
                keys,
                values,
                plan.slots,
                plan.begins[part],
                plan.ends[part],
                softcap or 0.0,
            )

        parts = _equal_parts(plan, torch.get_num_threads())
        if len(parts) == 1:
            attend_part(parts[0])
        else:
            list(_threads(len(parts)).map(attend_part, parts))
        return out


def _equal_parts(plan: KeyRanges, count: int) -> list[slice]:
    """Consecutive rows cut into at most ``count`` parts with about equally many keys."""
    rows = len(plan.begins)
    if count == 1 or rows == 1:
        return [slice(0, rows)]
    keys = np.cumsum(plan.ends - plan.begins)
    cuts = np.searchsorted(keys, keys[-1] * np.arange(1, count) / count, side="left") + 1
    edges = sorted({0, *cuts.tolist(), rows})
    return [slice(start, stop) for start, stop in pairwise(edges)]


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="attention")
