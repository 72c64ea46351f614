"""Exact attention in plain torch, registered with transformers as an attention implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn

from reference_engine.attention.plan import TileCall, plan_attention
from reference_engine.batch import RaggedBatch
from reference_engine.numerics import KEY_BLOCK, block_attention

IMPLEMENTATION: Final = "isobatch_exact"
"""The name under which transformers knows this attention."""


class KeyValueSource(Protocol):
    """Where a layer's keys and values are kept."""

    def put(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Keep this step's keys and values. Both: [kv_heads, rows, head_dim]."""

    def gather(self, layer: int, units: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of cache units. units: [n] -> each [kv_heads, n * unit, head_dim]."""


class ExactAttention:
    """The backend of one engine: makes an `AttentionStep` for each batch."""

    def __init__(self, source: KeyValueSource) -> None:
        self._source = source

    def step(self, batch: RaggedBatch) -> AttentionStep:
        """Attention over the keys of this engine for one batch."""
        return AttentionStep(batch, self._source, self.plan)

    def plan(self, batch: RaggedBatch, window: int | None) -> list[TileCall]:
        """The calls for a layer with this window."""
        return plan_attention(batch, window)


class AttentionStep:
    """One step's attention: the batch, the place of its keys, and the plans that layers share."""

    def __init__(
        self,
        batch: RaggedBatch,
        source: KeyValueSource,
        plan: Callable[[RaggedBatch, int | None], list[TileCall]] = plan_attention,
    ) -> None:
        self._batch = batch
        self._source = source
        self._make_plan = plan
        self._plans: dict[int | None, list[TileCall]] = {}

    def attend(
        self,
        layer: int,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        scaling: float,
        window: int | None,
        softcap: float | None,
    ) -> Tensor:
        """Store the step's keys and values, then attend.

        queries: [heads, rows, head_dim]; keys, values: [kv_heads, rows, head_dim]. Rows past the
        batch's tokens are padding: they are not stored and their output is zero.
        Returns [rows, heads, head_dim].
        """
        tokens = self._batch.num_tokens
        self._source.put(layer, keys[:, :tokens], values[:, :tokens])
        heads, rows, head_dim = queries.shape
        kv_heads = keys.shape[0]
        grouped = (queries * scaling).view(kv_heads, heads // kv_heads, rows, head_dim)
        by_row = grouped.transpose(1, 2).contiguous()  # [kv_heads, rows, group, head_dim]
        out = queries.new_zeros(kv_heads, rows, heads // kv_heads, values.shape[-1])
        for call in self._plan(window):
            k, v = self._source.gather(layer, call.units)
            tiles, size = call.rows.shape
            q = by_row.index_select(1, call.rows.view(-1))
            mixed = block_attention(
                q.view(kv_heads, tiles, size, heads // kv_heads, head_dim),
                k.view(kv_heads, -1, KEY_BLOCK, head_dim),
                v.view(kv_heads, -1, KEY_BLOCK, head_dim),
                call.hidden,
                call.tile_of_block,
                call.blocks_at_rank,
                softcap,
            )
            out.index_copy_(1, call.kept_rows, mixed.flatten(1, 2).index_select(1, call.kept))
        return out.transpose(0, 1).reshape(rows, heads, -1)

    def _plan(self, window: int | None) -> list[TileCall]:
        if window not in self._plans:
            self._plans[window] = self._make_plan(self._batch, window)
        return self._plans[window]


def exact_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    attention_step: AttentionStep,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in each layer. query: [1, heads, rows, head_dim] and so on."""
    layer = module.layer_idx
    assert isinstance(layer, int)  # noqa: S101
    out = attention_step.attend(
        layer,
        query[0],
        key[0],
        value[0],
        scaling=scaling,
        window=sliding_window,
        softcap=softcap,
    )
    return out.unsqueeze(0), None


def register() -> None:
    """Make the implementation known to transformers; harmless when repeated."""
    from transformers import AttentionInterface

    AttentionInterface.register(IMPLEMENTATION, exact_attention)


def positions_tensor(batch: RaggedBatch, rows: int) -> tuple[Tensor, Tensor]:
    """Token ids and positions padded with zeros to ``rows``. Each: [1, rows]."""
    missing = [0] * (rows - batch.num_tokens)
    ids = torch.tensor([[*batch.token_ids, *missing]])
    return ids, torch.tensor([[*batch.positions, *missing]])
