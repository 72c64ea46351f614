"""The start-up self-test: is this machine's arithmetic what `numerics` takes it to be?

Padding to fixed tiles makes the *shapes* of all calls alike. That the position of a row within a
call, the number of rows and the contents of the other rows leave its bits alone is a property of
the installed BLAS on this processor. It held wherever it was tried; here it is tried again, for
every weight shape of the model, before the first request is served.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import numpy as np
import torch
from torch import Tensor

from reference_engine import cpu_kernels, numerics
from reference_engine.batch import BatchBuilder, BatchSequence
from reference_engine.kv_store import StepKeys
from reference_engine.model import LoadedModel
from reference_engine.numerics import KEY_BLOCK, ROW_TILE
from reference_engine.row_kernels import RowKernels

ROW_COUNTS: Final = (1, 2, 7, 8, 9, 24, 33, 64, 100, 256, 517)
"""Rows per call that are compared with a row alone. Few enough to take seconds, and on both sides
of the sizes at which BLAS libraries change their strategy."""

WIDE: Final = 1 << 14
"""Matrices with more output columns are tried with fewer rows, to bound time."""


class InexactArithmetic(RuntimeError):
    """A row's bits depend on its company; nothing may be served on such a machine."""


def self_test(model: LoadedModel) -> int:
    """Try every shape the model uses; returns the number of rows compared.

    Raises InexactArithmetic, naming the operation and the shape, at the first difference.
    """
    generator = torch.Generator().manual_seed(0)
    compared = 0
    for out_features, width in sorted(model.linear_shapes()):
        matrix = torch.randn(out_features, width, generator=generator)
        weight = model.kernels.weight(matrix.to(model.device))
        counts = [c for c in ROW_COUNTS if out_features <= WIDE or c <= 64]
        compared += _compare_rows(
            f"linear {width} to {out_features}",
            partial(numerics.linear, weight=weight),
            width,
            counts,
            generator,
            model.device,
        )
    for width in sorted({width for _, width in model.linear_shapes()}):
        for name, operation in _row_operations(model.kernels):
            compared += _compare_rows(
                f"{name} of {width}", operation, width, ROW_COUNTS, generator, model.device
            )
    compared += _compare_rows(
        f"log-softmax of {model.vocab_size}",
        numerics.log_softmax,
        model.vocab_size,
        (1, 2, 9, 33),
        generator,
        torch.device("cpu"),
    )
    on_cpu = {"rows": _attend_rows, "blocks": _attend_blocks}
    for heads_and_width in sorted({(s.group, s.kv_heads, s.head_dim) for s in model.layers}):
        if model.attention.name in on_cpu:
            attend = on_cpu[model.attention.name]
            compared += _compare_attention(attend, *heads_and_width, generator)
        else:
            compared += compare_backend(model, *heads_and_width, generator)
    return compared


def _row_operations(kernels: RowKernels) -> Iterable[tuple[str, Callable[[Tensor], Tensor]]]:
    yield "RMS norm", partial(kernels.rms_norm, scale=None, eps=1e-5)
    yield "layer norm", partial(kernels.layer_norm, weight=None, bias=None, eps=1e-5)
    for name in ("silu", "sigmoid", "gelu", "tanh", "exp", "softplus"):
        function = getattr(torch.nn.functional, name, None) or getattr(torch, name)
        yield name, partial(_padded_rows, function)


def _padded_rows(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return function(numerics.pad_rows(x))[: x.shape[0]]


def _compare_rows(
    name: str,
    operation: Callable[[Tensor], Tensor],
    width: int,
    counts: Iterable[int],
    generator: torch.Generator,
    device: torch.device,
) -> int:
    """Each row in its batch, and with NaN neighbours, against the row alone."""
    compared = 0
    probe = torch.randn(1, width, generator=generator).to(device)
    alone = operation(probe)
    for count in counts:
        for neighbours in (torch.randn(count, width, generator=generator), None):
            blank = torch.full((count, width), float("nan"))
            rows = (blank if neighbours is None else neighbours).to(device)
            for position in sorted({0, count // 2, count - 1}):
                batch = rows.clone()
                batch[position] = probe[0]
                got = operation(batch)[position]
                compared += 1
                if not torch.equal(got, alone[0]):
                    raise InexactArithmetic(
                        f"{name}: a row's bits change at position {position} of {count} rows "
                        f"(row tile {ROW_TILE}); this machine's arithmetic is not row-exact"
                    )
    return compared


def _compare_attention(
    attend: Callable[[Tensor, Tensor, Tensor], Tensor],
    group: int,
    kv_heads: int,
    head_dim: int,
    generator: torch.Generator,
) -> int:
    """One query tile of every size among others, against the tile of one token alone."""
    blocks = 3
    keys = torch.randn(kv_heads, blocks, KEY_BLOCK, head_dim, generator=generator)
    values = torch.randn(keys.shape, generator=generator)
    query = torch.randn(kv_heads, 1, 1, group, head_dim, generator=generator)
    alone = attend(query, keys, values)[:, 0, 0]
    compared = 0
    for tiles, tokens in ((2, 1), (5, 1), (33, 1), (3, 8), (2, 64)):
        others = torch.randn(kv_heads, tiles, tokens, group, head_dim, generator=generator)
        for tile, token in ((0, 0), (tiles - 1, tokens - 1), (tiles // 2, tokens // 2)):
            queries = others.clone()
            queries[:, tile, token] = query[:, 0, 0]
            got = attend(queries, keys, values)[:, tile, token]
            compared += 1
            if not torch.equal(got, alone):
                raise InexactArithmetic(
                    f"attention with {kv_heads} key heads of {head_dim}: a query's bits change "
                    f"among {tiles} tiles of {tokens} tokens (key block {KEY_BLOCK})"
                )
    return compared


def compare_backend(
    model: LoadedModel, group: int, kv_heads: int, head_dim: int, generator: torch.Generator
) -> int:
    """A row decoded alone, among others and inside its whole prompt, by the model's own backend."""
    page, context = math.lcm(KEY_BLOCK, model.attention.page_multiple), 2 * KEY_BLOCK + 5

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(model.device, model.dtype)

    def last_row(count: int, others: int) -> Tensor:
        tables = [[range(context // page + 1)]] * (others + 1)
        counts = [count] + [1] * others
        batch = BatchBuilder(page).build(
            [BatchSequence((0,) * c, context - c, t) for c, t in zip(counts, tables, strict=True)]
        )
        queries = random(kv_heads * group, batch.num_tokens, head_dim)
        queries[:, count - 1] = query
        plan = model.attention.plan(batch, None, 0)
        out = model.attention.attend(plan, keys, 0, queries, scaling=0.125, softcap=None)
        return out[count - 1]

    keys = StepKeys(1, page)
    keys.put(0, random(kv_heads, context, head_dim), random(kv_heads, context, head_dim))
    query = random(kv_heads * group, head_dim)
    alone = last_row(1, 0)
    cases = ((1, 1), (1, 33), (17, 3), (context, 0))
    for count, others in cases:
        if not torch.equal(last_row(count, others), alone):
            raise InexactArithmetic(
                f"{model.attention.name} attention with {kv_heads} key heads of {head_dim}: a "
                f"query's bits change in a chunk of {count} beside {others} decodes"
            )
    return len(cases)


def _attend_rows(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """As `_attend_blocks`, by the compiled loops, the blocks' keys in an order of their own."""
    kv_heads, tiles, tokens, group, head_dim = queries.shape
    by_row = queries.permute(1, 2, 0, 3, 4).reshape(tiles * tokens, kv_heads * group, head_dim)
    out = np.empty(by_row.shape, np.float32)
    slots = np.arange(keys.shape[1] * KEY_BLOCK)[::-1].copy()
    begins = np.zeros(len(by_row), np.int64)
    cpu_kernels.attend_rows(
        out,
        by_row.numpy(),
        keys.flatten(1, 2).numpy(),
        values.flatten(1, 2).numpy(),
        slots,
        begins,
        begins + len(slots),
        0.0,
    )
    by_tile = torch.from_numpy(out).view(tiles, tokens, kv_heads, group, head_dim)
    return by_tile.permute(2, 0, 1, 3, 4)


def _attend_blocks(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Every tile over the same blocks, everything visible."""
    tiles, tokens = queries.shape[1:3]
    blocks = keys.shape[1]
    of_block = torch.arange(blocks).repeat_interleave(tiles)
    return numerics.block_attention(
        queries,
        keys[:, of_block],
        values[:, of_block],
        torch.zeros(blocks * tiles, tokens, KEY_BLOCK, dtype=torch.bool),
        torch.arange(tiles).repeat(blocks),
        [tiles] * blocks,
    )
