"""flash-attn's two entry points in plain torch: same signatures, every argument checked."""

from __future__ import annotations

import torch
from torch import Tensor


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    block_table: Tensor | None = None,
) -> Tensor:
    """flash-attn 2. k, v: [pages, page_size, kv_heads, head_dim] with a block table."""
    assert dropout_p == 0.0
    assert block_table is not None
    assert k.shape[1] % 256 == 0, f"flash-attn 2 wants pages of 256 tokens, not {k.shape[1]}"
    assert max_seqlen_q > 1, "the library would split the keys by a heuristic over the batch"
    lengths_k = cu_seqlens_k.diff()
    assert cu_seqlens_k.dtype == torch.int32
    assert int(cu_seqlens_k[0]) == 0
    assert int(lengths_k.max()) <= max_seqlen_k <= block_table.shape[1] * k.shape[1]
    assert window_size[0] < max_seqlen_k - 1, "a window that covers the table is taken for none"
    return _attend(
        q, k, v, cu_seqlens_q, lengths_k, max_seqlen_q, softmax_scale, causal, window_size,
        softcap, block_table,
    )  # fmt: skip


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    cache_seqlens: Tensor,
    page_table: Tensor,
    cu_seqlens_q: Tensor,
    max_seqlen_q: int,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
) -> Tensor:
    """flash-attn 3. Splits and head packing must be fixed, or they would follow the batch."""
    assert num_splits == 1, "0 lets the library choose from the batch"
    assert pack_gqa is not None, "None lets the library choose from the batch"
    bound = page_table.shape[1] * k_cache.shape[1]
    assert window_size[0] < bound - 1, "a window that covers the table is taken for none"
    return _attend(
        q, k_cache, v_cache, cu_seqlens_q, cache_seqlens, max_seqlen_q, softmax_scale, causal,
        window_size, softcap, page_table,
    )  # fmt: skip


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    lengths_k: Tensor,
    max_seqlen_q: int,
    softmax_scale: float | None,
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
    block_table: Tensor,
) -> Tensor:
    _check(q, k, v, cu_seqlens_q, lengths_k, max_seqlen_q, block_table)
    assert causal
    assert softmax_scale is not None
    out = torch.full_like(q, float("nan"))
    page_size, group = k.shape[1], q.shape[1] // k.shape[2]
    for i, length in enumerate(lengths_k.tolist()):
        first, last = cu_seqlens_q[i].item(), cu_seqlens_q[i + 1].item()
        pages = block_table[i, : -(-length // page_size)].long()
        keys, values = (x[pages].flatten(0, 1)[:length].double() for x in (k, v))
        rows = q[first:last].double()
        scores = torch.einsum("qhd,khd->hqk", rows, keys.repeat_interleave(group, 1))
        scores *= softmax_scale
        if softcap > 0:
            scores = softcap * torch.tanh(scores / softcap)
        at = torch.arange(length - (last - first), length)[:, None]  # rows are the last keys
        key_at = torch.arange(length)[None, :]
        hidden = key_at > at
        if window_size != (-1, -1):
            assert window_size[1] == 0
            hidden |= key_at < at - window_size[0]
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        mixed = torch.einsum("hqk,khd->qhd", weights, values.repeat_interleave(group, 1))
        out[first:last] = mixed.to(q.dtype)
    return out


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    lengths_k: Tensor,
    max_seqlen_q: int,
    block_table: Tensor,
) -> None:
    """What the library demands or silently assumes."""
    assert q.dim() == 3
    assert k.shape == v.shape
    assert k.dim() == 4
    assert q.shape[2] == k.shape[3]
    assert q.shape[1] % k.shape[2] == 0
    assert q.stride(-1) == k.stride(-1) == v.stride(-1) == 1, "the last dimension is contiguous"
    for lengths in (cu_seqlens_q, lengths_k, block_table):
        assert lengths.dtype == torch.int32
    assert int(cu_seqlens_q[0]) == 0
    assert int(cu_seqlens_q[-1]) == q.shape[0], "every row belongs to a sequence"
    counts = cu_seqlens_q.diff()
    assert bool((counts > 0).all())
    assert bool((counts <= lengths_k).all()), "a sequence's rows are among its keys"
    assert int(counts.max()) <= max_seqlen_q
    assert block_table.shape[0] == len(lengths_k)
    assert block_table.shape[1] * k.shape[1] >= int(lengths_k.max())
    assert bool((block_table >= 0).all())
    assert int(block_table.max()) < k.shape[0]
