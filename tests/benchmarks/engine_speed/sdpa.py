"""Attention without the contract: torch's scaled_dot_product_attention, a call a sequence."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from reference_engine.attention.backend import KeyValueSource
from reference_engine.batch import RaggedBatch


class SdpaAttention:
    """An attention backend whose bits move with the batch; only ever used to price exactness."""

    name = "sdpa"
    reads_hidden_keys = False
    page_multiple = 1

    def plan(
        self, batch: RaggedBatch, window: int | None, group: int
    ) -> list[tuple[slice, Tensor, int]]:
        """Each sequence's rows, the cache slots of its context, and where its rows start."""
        assert window is None, "full attention only"
        size = batch.page_size
        plan = []
        for start, sequence in zip(batch.cu_seqlens, batch.sequences, strict=False):
            table = torch.tensor(list(sequence.block_tables[group]))
            at = torch.arange(sequence.context)
            slots = table[at // size] * size + at % size
            plan.append((slice(start, start + sequence.count), slots, sequence.start))
        return plan

    def attend(
        self,
        plan: list[tuple[slice, Tensor, int]],
        source: KeyValueSource,
        layer: int,
        queries: Tensor,
        *,
        scaling: float,
        softcap: float | None,
    ) -> Tensor:
        """See `AttentionBackend.attend`."""
        assert softcap is None, "no soft-capping"
        keys, values = source.rows(layer)
        out = torch.empty_like(queries)
        for rows, slots, start in plan:
            q = queries[None, :, rows]
            count = q.shape[2]
            mask = None
            if count > 1 and start > 0:
                mask = torch.ones(count, len(slots), dtype=torch.bool).tril(start)
            out[:, rows] = F.scaled_dot_product_attention(
                q,
                keys[None, :, slots],
                values[None, :, slots],
                attn_mask=mask,
                is_causal=count > 1 and start == 0,
                scale=scaling,
                enable_gqa=True,
            )[0]
        return out.transpose(0, 1)
