"""Attention over key blocks in plain torch: a few large calls, on a CPU, in any type."""

from __future__ import annotations

from torch import Tensor

from reference_engine.attention.backend import KeyValueSource
from reference_engine.attention.plan import TileCall, plan_attention
from reference_engine.batch import RaggedBatch
from reference_engine.numerics import KEY_BLOCK, block_attention


class BlockAttention:
    """Query tiles over key blocks that are anchored at position 0; see `numerics`."""

    name = "blocks"
    reads_hidden_keys = True
    page_multiple = 1

    def plan(self, batch: RaggedBatch, window: int | None, group: int) -> list[TileCall]:
        """The calls that cover every row."""
        return plan_attention(batch, window, group)

    def attend(
        self,
        plan: list[TileCall],
        source: KeyValueSource,
        layer: int,
        queries: Tensor,
        *,
        scaling: float,
        softcap: float | None,
    ) -> Tensor:
        """See `AttentionBackend.attend`."""
        heads, rows, head_dim = queries.shape
        mixed: Tensor | None = None
        for call in plan:
            k, v = source.gather(layer, call.units)
            kv_heads = k.shape[0]
            grouped = (queries * scaling).reshape(kv_heads, heads // kv_heads, rows, head_dim)
            by_row = grouped.transpose(1, 2)  # [kv_heads, rows, group, head_dim]
            tiles, size = call.rows.shape
            part = block_attention(
                by_row.index_select(1, call.rows.view(-1)).view(
                    kv_heads, tiles, size, heads // kv_heads, head_dim
                ),
                k.view(kv_heads, -1, KEY_BLOCK, head_dim),
                v.view(kv_heads, -1, KEY_BLOCK, head_dim),
                call.hidden,
                call.tile_of_block,
                call.blocks_at_rank,
                softcap,
            )
            if mixed is None:
                mixed = queries.new_zeros(by_row.shape)
            mixed.index_copy_(1, call.kept_rows, part.flatten(1, 2).index_select(1, call.kept))
        assert mixed is not None  # noqa: S101  # a batch has rows, so a plan has calls
        return mixed.transpose(0, 1).reshape(rows, heads, head_dim)
