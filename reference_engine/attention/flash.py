"""Attention by flash-attn's kernels over the paged cache: CUDA, half precision, no copies.

Exactness rests on three choices. The number of splits over the keys is fixed to one: left to
itself the library picks it from the batch, and the order of the sums with it. There is one kernel
for decodes, chunks and whole prompts. And its key tiles start at position 0 of each sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from reference_engine.attention.backend import KeyValueSource
from reference_engine.attention.decode_tables import DecodeTables
from reference_engine.batch import RaggedBatch


@dataclass(frozen=True, slots=True)
class VarlenPlan:
    """A ragged batch in the terms of a varlen kernel; all tensors are int32.

    Sequence ``i`` has the batch rows ``cu_seqlens_q[i]`` up to ``cu_seqlens_q[i + 1]``, sees
    ``context_lens[i]`` keys, of which the last ones are its own rows, and finds them in the pages
    ``block_table[i]``, padded with the null page. ``window``: how many keys before its own a row
    sees, or None for all.
    """

    cu_seqlens_q: Tensor
    cu_seqlens_k: Tensor
    context_lens: Tensor
    block_table: Tensor
    max_seqlen_q: int
    max_seqlen_k: int
    window: int | None
    page_size: int


class VarlenKernel(Protocol):
    """One library's kernel behind a common signature."""

    page_multiple: int

    def __call__(
        self,
        queries: Tensor,
        key_pages: Tensor,
        value_pages: Tensor,
        plan: VarlenPlan,
        *,
        scaling: float,
        softcap: float,
    ) -> Tensor:
        """queries: [rows, heads, head_dim]; pages: [pages, page_size, kv_heads, head_dim]."""


class FlashAttention:
    """The backend for CUDA in bf16 and fp16."""

    name = "flash"
    reads_hidden_keys = True

    def __init__(self, kernel: VarlenKernel, device: torch.device | None = None) -> None:
        self._kernel = kernel
        self._device = device or torch.device("cpu")
        self.page_multiple = kernel.page_multiple

    def plan(self, batch: RaggedBatch, window: int | None, group: int) -> VarlenPlan:
        """The batch's lengths and block tables, on the device."""
        pages = [-(-s.context // batch.page_size) for s in batch.sequences]
        width = max(*pages, least_pages(window, batch.page_size))
        table = torch.zeros(len(pages), width, dtype=torch.int32)
        for row, (sequence, count) in enumerate(zip(batch.sequences, pages, strict=True)):
            known = list(sequence.block_tables[group][:count])
            table[row, :count] = torch.tensor(known, dtype=torch.int32)
        contexts = torch.tensor([s.context for s in batch.sequences], dtype=torch.int32)
        return VarlenPlan(
            cu_seqlens_q=torch.tensor(batch.cu_seqlens, dtype=torch.int32).to(self._device),
            cu_seqlens_k=_starts(contexts).to(self._device),
            context_lens=contexts.to(self._device),
            block_table=table.to(self._device),
            max_seqlen_q=max(s.count for s in batch.sequences),
            max_seqlen_k=width * batch.page_size,
            window=None if window is None else window - 1,
            page_size=batch.page_size,
        )

    def plan_decodes(self, tables: DecodeTables, window: int | None, group: int) -> VarlenPlan:
        """The same from fixed tables: one row a sequence."""
        contexts = tables.positions + 1
        rows = torch.cat([tables.rows, tables.rows[-1:] + 1])
        table, size = tables.block_tables[group], tables.page_size
        missing = least_pages(window, size) - table.shape[1]
        if missing > 0:
            table = torch.nn.functional.pad(table, (0, missing))
        return VarlenPlan(
            cu_seqlens_q=rows,
            cu_seqlens_k=_starts(contexts),
            context_lens=contexts,
            block_table=table,
            max_seqlen_q=1,
            max_seqlen_k=table.shape[1] * size,
            window=None if window is None else window - 1,
            page_size=size,
        )

    def attend(
        self,
        plan: VarlenPlan,
        source: KeyValueSource,
        layer: int,
        queries: Tensor,
        *,
        scaling: float,
        softcap: float | None,
    ) -> Tensor:
        """See `AttentionBackend.attend`."""
        multiple = self._kernel.page_multiple
        if plan.page_size % multiple:
            raise ValueError(
                f"this attention kernel needs a page size that is a multiple of {multiple}, "
                f"not {plan.page_size}"
            )
        keys, values = (_as_pages(x, plan.page_size) for x in source.rows(layer))
        rows = queries.transpose(0, 1)
        return self._kernel(
            rows, keys, values, plan, scaling=scaling, softcap=0.0 if softcap is None else softcap
        )


def least_pages(window: int | None, page_size: int) -> int:
    """Pages that a block table of a layer with this window names at least.

    The library takes a window that covers the whole table for none, and then uses another kernel:
    a short batch would be computed otherwise than a long one.
    """
    return 1 if window is None else window // page_size + 2


def _starts(lengths: Tensor) -> Tensor:
    """Cumulated lengths from 0. lengths: [n] -> [n + 1], int32."""
    ends = lengths.cumsum(0, dtype=torch.int32)
    return torch.nn.functional.pad(ends, (1, 0))


def _as_pages(rows: Tensor, page_size: int) -> Tensor:
    """A view, no copy. [kv_heads, slots, head_dim] -> [pages, page_size, kv_heads, head_dim]."""
    kv_heads, _, head_dim = rows.shape
    return rows.view(kv_heads, -1, page_size, head_dim).permute(1, 2, 0, 3)


class Flash2Kernel:
    """flash-attn 2: ``flash_attn_varlen_func`` with a ``block_table``.

    Where all rows are decodes (``max_seqlen_q == 1``) the library folds query heads into rows and
    splits the keys by a heuristic over the batch. The bound is therefore never given as 1: a
    larger bound is allowed, and keeps decodes on the kernel that computes chunks.
    """

    page_multiple = 256

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(
        self,
        queries: Tensor,
        key_pages: Tensor,
        value_pages: Tensor,
        plan: VarlenPlan,
        *,
        scaling: float,
        softcap: float,
    ) -> Tensor:
        """See `VarlenKernel`."""
        out: Tensor = self._function(
            queries,
            key_pages,
            value_pages,
            plan.cu_seqlens_q,
            plan.cu_seqlens_k,
            max(2, plan.max_seqlen_q),
            plan.max_seqlen_k,
            softmax_scale=scaling,
            causal=True,
            window_size=(-1, -1) if plan.window is None else (plan.window, 0),
            softcap=softcap,
            block_table=plan.block_table,
        )
        return out


class Flash3Kernel:
    """flash-attn 3: ``flash_attn_with_kvcache`` with ``page_table`` and ``num_splits=1``.

    ``pack_gqa`` is fixed: the library would choose it from the lengths of the batch.
    """

    page_multiple = 1

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(
        self,
        queries: Tensor,
        key_pages: Tensor,
        value_pages: Tensor,
        plan: VarlenPlan,
        *,
        scaling: float,
        softcap: float,
    ) -> Tensor:
        """See `VarlenKernel`."""
        out: Tensor = self._function(
            queries,
            key_pages,
            value_pages,
            cache_seqlens=plan.context_lens,
            page_table=plan.block_table,
            cu_seqlens_q=plan.cu_seqlens_q,
            max_seqlen_q=plan.max_seqlen_q,
            softmax_scale=scaling,
            causal=True,
            window_size=(-1, -1) if plan.window is None else (plan.window, 0),
            softcap=softcap,
            num_splits=1,
            pack_gqa=False,
        )
        return out


def installed_kernel() -> VarlenKernel | None:
    """flash-attn 3 if it is installed, else 2, else None."""
    try:
        from flash_attn_interface import flash_attn_with_kvcache
    except ImportError:
        pass
    else:
        return Flash3Kernel(flash_attn_with_kvcache)
    try:
        from flash_attn import flash_attn_varlen_func
    except ImportError:
        return None
    return Flash2Kernel(flash_attn_varlen_func)
