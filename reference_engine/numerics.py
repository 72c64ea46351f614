"""Every floating-point reduction of the engine, and the reason why its results are exact.

The bits of a float sum depend on the order of its terms, and a BLAS library picks that order from
the shape of the call. What takes the choice away:

- On a CPU in fp32, matrix products (`cpu_matmul`), attention and RMS norms (`cpu_kernels`) are
  loops of our own, which compute each row from its own inputs: a query sums its keys in the order
  of their positions whether it is computed by a decode step, by a chunk, or by a full recompute.
- ``ROW_TILE``: elsewhere a matrix product never sees a number of rows that is not a multiple of it.
  Rows are padded with zeros up to the next multiple, so one row alone and one row among a thousand
  run through the same inner loop. That rows do not influence each other *within* such a call is an
  observation about the library, not a theorem. `reference_engine.self_test` checks it for every
  weight shape before anything is served.
- ``KEY_BLOCK``: elsewhere, attention reads keys in blocks of this many positions, anchored at
  position 0, and adds the blocks up in order, to the same effect.

Everything else here is elementwise, where order does not matter, or a maximum, which is exact in
any order. No other module of the engine may call a reduction (a test greps for it).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from reference_engine import cpu_kernels, cpu_matmul

ROW_TILE: Final = 4
KEY_BLOCK: Final = 64


def padded(count: int, multiple: int) -> int:
    """The smallest multiple of ``multiple`` that is at least ``count``."""
    return -(-count // multiple) * multiple


def pad_rows(x: Tensor, fill: float = 0.0) -> Tensor:
    """``x``: [rows, width] with rows appended up to a multiple of ``ROW_TILE``.

    Production pads with zeros; tests pad with NaN to see that padding cannot leak.
    """
    missing = padded(x.shape[0], ROW_TILE) - x.shape[0]
    return F.pad(x, (0, 0, 0, missing), value=fill) if missing else x.contiguous()


class LinearWeight:
    """A weight matrix ready for `linear`, in the layout that its kernel reads.

    In fp32 on a CPU with fused multiply-add it is packed for `cpu_matmul`. Otherwise oneDNN keeps
    a reordered copy, if there is oneDNN: a plain product reorders the matrix in every call, which
    costs more than the arithmetic when only a few rows are multiplied.
    """

    rows_are_alone = False
    """Whether `times` takes any number of rows, and each by itself."""

    def __init__(self, weight: Tensor) -> None:
        """weight: [out, in]."""
        self.out_features, self.in_features = weight.shape
        detached = weight.detach()
        on_cpu = weight.device.type == "cpu"
        self.rows_are_alone = on_cpu and weight.dtype is torch.float32 and cpu_matmul.HAS_FMA
        self._is_blocked = on_cpu and not self.rows_are_alone and torch._C._has_mkldnn
        if self.rows_are_alone:
            self._panels = cpu_matmul.panels_of(self.out_features)
            packed = torch.empty(self._panels, self.in_features, cpu_matmul.PANEL)
            cpu_matmul.pack(detached.numpy(), packed.numpy())
            detached = packed
        elif self._is_blocked:
            detached = torch.ops.mkldnn._reorder_linear_weight(detached.contiguous(), _ROWS_HINT)
        self._weight = detached

    def times(self, x: Tensor) -> Tensor:
        """``x @ weight.T``. x: [rows, in] -> [rows, out].

        Rows are a multiple of ``ROW_TILE`` unless ``rows_are_alone``.
        """
        if self.rows_are_alone:
            return self._times_packed(x.contiguous())
        if self._is_blocked:
            out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, None, "none", [], "")
            return out
        return F.linear(x, self._weight)

    def _times_packed(self, x: Tensor) -> Tensor:
        """Threads share out the columns."""
        result = x.new_empty(x.shape[0], self.out_features)
        out, rows, packed = result.numpy(), x.numpy(), self._weight.numpy()
        threads = torch.get_num_threads() if x.numel() * self.out_features > _SHARED_WORK else 1
        if threads == 1:
            cpu_matmul.multiply_rows(out, rows, packed, 0, self._panels)
            return result
        edges = [self._panels * part // threads for part in range(threads + 1)]
        multiply = partial(cpu_matmul.multiply_rows, out, rows, packed)
        list(_threads(threads).map(multiply, edges, edges[1:]))
        return result


_ROWS_HINT: Final = 16
"""The row count for which oneDNN chooses its layout; any works, this suits decode batches."""

_SHARED_WORK: Final = 1 << 20
"""A product of fewer multiplications is not worth a second thread."""


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="matmul")


def linear(x: Tensor, weight: LinearWeight, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias`` row by row. x: [..., in] -> [..., out].

    The bias is added apart: fused, it would start the sum and change with the kernel.
    """
    flat = x.reshape(-1, weight.in_features)
    if weight.rows_are_alone:
        out = weight.times(flat)
    else:
        out = weight.times(pad_rows(flat))[: flat.shape[0]]
    if bias is not None:
        out = out + bias
    return out.reshape(*x.shape[:-1], weight.out_features)


def mean_square(x: Tensor) -> Tensor:
    """The mean of squares of each row in fp32. x: [..., width] -> [..., 1]."""
    flat = pad_rows(x.reshape(-1, x.shape[-1]).float())
    mean = flat.square().mean(-1, keepdim=True)
    return mean[: x.numel() // x.shape[-1]].reshape(*x.shape[:-1], 1)


def rms_norm(x: Tensor, scale: Tensor | None, eps: float) -> Tensor:
    """``x / sqrt(mean(x^2) + eps) * scale`` in fp32. x: [..., width] -> [..., width]."""
    rows = x.float()
    if x.device.type != "cpu":
        normed = rows * torch.rsqrt(mean_square(rows) + eps)
        return normed if scale is None else normed * scale
    rows = rows.contiguous()
    out = torch.empty_like(rows)
    width = rows.shape[-1]
    weight = torch.ones(width) if scale is None else scale
    cpu_kernels.rms_norm_rows(
        out.view(-1, width).numpy(), rows.view(-1, width).numpy(), weight.numpy(), eps
    )
    return out


def finite_rows(x: Tensor) -> list[bool]:
    """Whether each row is free of NaN and infinity. x: [rows, width], fp32."""
    on_cpu = x.device.type == "cpu"
    finite = (
        torch.from_numpy(cpu_kernels.finite_rows(x.numpy())) if on_cpu else x.isfinite().all(-1)
    )
    return [bool(row) for row in finite.tolist()]


def mean_row(x: Tensor) -> Tensor:
    """The mean of each row in fp32. x: [..., width] -> [..., 1]."""
    flat = pad_rows(x.reshape(-1, x.shape[-1]).float())
    return flat.mean(-1, keepdim=True)[: x.numel() // x.shape[-1]].reshape(*x.shape[:-1], 1)


def log_softmax(logits: Tensor) -> Tensor:
    """Natural log-probabilities in fp32. logits: [rows, vocab] -> [rows, vocab].

    The sum over the vocabulary is a tree of elementwise additions: a single reduction over tens of
    thousands of numbers is cut differently by two threads than by one.
    """
    shifted = logits.float() - logits.float().amax(-1, keepdim=True)
    return shifted - _tree_sum(pad_rows(shifted).exp())[: logits.shape[0]].log()


def row_sum(x: Tensor) -> Tensor:
    """The sum of each row. x: [rows, width] -> [rows, 1]."""
    return _tree_sum(x)


def exponential(x: Tensor) -> Tensor:
    """``exp`` of each entry, on whole tiles. x: [rows, width] -> [rows, width]."""
    return pad_rows(x).exp()[: x.shape[0]]


def _tree_sum(x: Tensor) -> Tensor:
    """The sum of each row by halving. x: [rows, width] -> [rows, 1]."""
    width = 1 << (x.shape[1] - 1).bit_length()
    x = F.pad(x, (0, width - x.shape[1]))
    while width > 1:
        width //= 2
        x = x[:, :width] + x[:, width:]
    return x


def block_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    hidden: Tensor,
    tile_of_block: Tensor,
    blocks_at_rank: Sequence[int],
    softcap: float | None = None,
) -> Tensor:
    """Attention of many query tiles at once, each over its own list of key blocks.

    A *tile* is a few consecutive tokens of one request with all the query heads that share a key
    head; its blocks are numbered by *rank*, the first visible one being rank 0. Blocks come sorted
    by rank, and within a rank in the order of the tiles, of which those with more blocks come
    first: so the blocks of one rank belong to the first ``blocks_at_rank[rank]`` tiles.

    Args:
        queries: [kv_heads, tiles, tokens, group, head_dim], already scaled.
        keys, values: [kv_heads, blocks, KEY_BLOCK, head_dim]; finite wherever they are hidden.
        hidden: [blocks, tokens, KEY_BLOCK], True where a query may not see a key.
        tile_of_block: [blocks], the tile each block belongs to.
        blocks_at_rank: how many blocks there are of rank 0, 1, ...
        softcap: scores become ``softcap * tanh(score / softcap)``.

    Returns:
        [kv_heads, tiles, tokens, group, head_dim].

    The softmax takes two passes: the maximum over all visible keys first, exact in any order, then
    numerators and products block by block, added in rank order. A block that is wholly hidden adds
    zeros and changes nothing.
    """
    kv_heads, _, tokens, group, head_dim = queries.shape
    seen = tokens * group
    scores = _block_scores(queries, keys, hidden, tile_of_block, softcap)
    best = _over_ranks(scores.amax(-1), blocks_at_rank, maximum=True)
    weights = scores.sub_(best.index_select(1, tile_of_block).unsqueeze(-1)).exp_()
    total = _over_ranks(weights.sum(-1), blocks_at_rank)
    mixed = torch.bmm(weights.flatten(0, 1), values.reshape(-1, KEY_BLOCK, head_dim)).view(
        kv_heads, -1, weights.shape[2], head_dim
    )
    out = _over_ranks(mixed, blocks_at_rank) / total.unsqueeze(-1)
    return out[:, :, :seen].reshape(queries.shape)


def _block_scores(
    queries: Tensor, keys: Tensor, hidden: Tensor, tile_of_block: Tensor, softcap: float | None
) -> Tensor:
    """The scores of every block's queries: [kv_heads, blocks, padded rows, KEY_BLOCK]."""
    kv_heads, tiles, tokens, group, head_dim = queries.shape
    rows = padded(tokens * group, ROW_TILE)
    q = queries.reshape(kv_heads, tiles, tokens * group, head_dim)
    q = F.pad(q, (0, 0, 0, rows - tokens * group)).index_select(1, tile_of_block)
    scores = torch.bmm(q.flatten(0, 1), keys.reshape(-1, KEY_BLOCK, head_dim).transpose(1, 2)).view(
        kv_heads, -1, rows, KEY_BLOCK
    )
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    # In place on a view: the padding rows stay as they are, finite and unused.
    per_row = hidden.repeat_interleave(group, dim=1)
    scores[:, :, : tokens * group].masked_fill_(per_row, float("-inf"))
    return scores


def _over_ranks(x: Tensor, blocks_at_rank: Sequence[int], *, maximum: bool = False) -> Tensor:
    """Combine the blocks of each tile in rank order. x: [kv_heads, blocks, ...] -> [.., tiles, ..].

    Sums start from +0.0, so that a leading hidden block, which adds +0.0 or -0.0, leaves no trace.
    """
    tiles = blocks_at_rank[0]
    combined = x[:, :tiles].clone() if maximum else x[:, :tiles] + 0.0
    start = tiles
    for count in blocks_at_rank[1:]:
        part, into = x[:, start : start + count], combined[:, :count]
        torch.maximum(into, part, out=into) if maximum else into.add_(part)
        start += count
    return combined
