"""Attention over the paged cache in Triton: any type, any page size, one program a row.

A program computes one row for one key head: the row's position says how many keys there are, the
block table where they lie. Keys come in blocks of `KEY_BLOCK` anchored at position 0, with a
running softmax in fp32, first block to last. Nothing else about the batch reaches a program, so
batch mates, chunk cuts and pages cannot move a bit. Rows read their keys one by one, which suits
decodes; for half precision flash-attn, where it is installed, is quicker on prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
import triton
from torch import Tensor

from reference_engine.attention.backend import KeyValueSource
from reference_engine.attention.decode_tables import DecodeTables
from reference_engine.attention.paged_kernel import attend_rows_kernel
from reference_engine.batch import RaggedBatch
from reference_engine.numerics import KEY_BLOCK

DOT_ROWS: Final = 16
"""Rows that a matrix product needs at least: the query heads of a key head are padded up to it."""


@dataclass(frozen=True, slots=True)
class RowTables:
    """Row ``r`` is at ``positions[r]`` of the sequence whose pages are ``block_table[owner[r]]``.

    owner, positions: [rows]; block_table: [sequences, pages]; all int32, on the device.
    """

    owner: Tensor
    positions: Tensor
    block_table: Tensor
    window: int | None
    page_size: int


class PagedTritonAttention:
    """The backend for CUDA in fp32, and in half precision where flash-attn is not installed."""

    name = "triton"
    reads_hidden_keys = False
    page_multiple = 1

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def plan(self, batch: RaggedBatch, window: int | None, group: int) -> RowTables:
        """The batch's rows and block tables, on the device."""
        pages = [-(-s.context // batch.page_size) for s in batch.sequences]
        table = torch.zeros(len(pages), max(pages), dtype=torch.int32)
        owner: list[int] = []
        for row, (sequence, count) in enumerate(zip(batch.sequences, pages, strict=True)):
            known = list(sequence.block_tables[group][:count])
            table[row, :count] = torch.tensor(known, dtype=torch.int32)
            owner += [row] * sequence.count
        return RowTables(
            owner=torch.tensor(owner, dtype=torch.int32).to(self._device),
            positions=torch.tensor(batch.positions, dtype=torch.int32).to(self._device),
            block_table=table.to(self._device),
            window=window,
            page_size=batch.page_size,
        )

    def plan_decodes(self, tables: DecodeTables, window: int | None, group: int) -> RowTables:
        """The same from fixed tables: one row a sequence."""
        return RowTables(
            owner=tables.rows,
            positions=tables.positions,
            block_table=tables.block_tables[group],
            window=window,
            page_size=tables.page_size,
        )

    def attend(
        self,
        plan: RowTables,
        source: KeyValueSource,
        layer: int,
        queries: Tensor,
        *,
        scaling: float,
        softcap: float | None,
    ) -> Tensor:
        """See `AttentionBackend.attend`."""
        keys, values = source.rows(layer)
        rows = queries.transpose(0, 1).contiguous()
        count, heads, head_dim = rows.shape
        kv_heads = keys.shape[0]
        out = torch.empty_like(rows)
        attend_rows_kernel[(count, kv_heads)](
            rows,
            keys,
            values,
            out,
            plan.owner,
            plan.positions,
            plan.block_table,
            plan.block_table.stride(0),
            keys.stride(0),
            scaling,
            0.0 if softcap is None else softcap,
            WINDOW=0 if plan.window is None else plan.window,
            CAPPED=softcap is not None,
            PAGE=plan.page_size,
            HEADS=heads,
            GROUP=heads // kv_heads,
            GROUP_PAD=max(DOT_ROWS, triton.next_power_of_2(heads // kv_heads)),
            WIDTH=head_dim,
            WIDTH_PAD=max(DOT_ROWS, triton.next_power_of_2(head_dim)),
            BLOCK=KEY_BLOCK,
        )
        return out
