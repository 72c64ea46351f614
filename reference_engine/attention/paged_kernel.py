"""The Triton kernel of `paged_triton`: one program computes one row for one key head."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _capped(scores, softcap):  # type: ignore[no-untyped-def]
    """``softcap * tanh(scores / softcap)``, from exponentials whose argument is never above 0."""
    bent = tl.abs(scores) / softcap
    shrunk = tl.exp(-2.0 * bent)
    bent = (1.0 - shrunk) / (1.0 + shrunk) * softcap
    return tl.where(scores < 0, -bent, bent)


@triton.jit  # type: ignore[untyped-decorator]
def _add_block(query, key, value, seen, state, softcap, CAPPED: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """One block of keys into the running softmax: (maximum, sum of weights, weighted values)."""
    best, total, mixed = state
    scores = tl.dot(query, tl.trans(key), input_precision="ieee")
    if CAPPED:
        scores = _capped(scores, softcap)
    scores = tl.where(seen[None, :], scores, float("-inf"))
    larger = tl.maximum(best, tl.max(scores, axis=1))
    weights = tl.exp(scores - larger[:, None])
    fading = tl.exp(best - larger)
    total = total * fading + tl.sum(weights, axis=1)
    mixed = mixed * fading[:, None] + tl.dot(weights, value, input_precision="ieee")
    return larger, total, mixed


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["table_stride", "head_stride"],
    do_not_specialize_on_alignment=["q", "out", "owner", "positions", "table"],
)
def attend_rows_kernel(  # type: ignore[no-untyped-def]
    q, keys, values, out, owner, positions, table, table_stride, head_stride, scaling, softcap,
    WINDOW: tl.constexpr, CAPPED: tl.constexpr, PAGE: tl.constexpr,  # noqa: N803
    HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_PAD: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """q, out: [rows, HEADS, WIDTH]; keys, values: [kv_heads, slots, WIDTH]; grid: rows, kv_heads.

    Keys that the row may not see are not read: blocks begin at multiples of BLOCK, and the edges of
    the first and the last are masked.
    """
    row, kv_head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    position = tl.load(positions + row)
    pages = table + tl.load(owner + row).to(tl.int64) * table_stride
    at_head, at_width = tl.arange(0, GROUP_PAD), tl.arange(0, WIDTH_PAD)
    at_q = (row * HEADS + kv_head * GROUP + at_head[:, None]) * WIDTH + at_width[None, :]
    real = (at_head[:, None] < GROUP) & (at_width[None, :] < WIDTH)
    query = tl.load(q + at_q, mask=real, other=0.0).to(tl.float32) * scaling
    best = tl.full((GROUP_PAD,), float("-inf"), tl.float32)
    total = tl.zeros((GROUP_PAD,), tl.float32)
    mixed = tl.zeros((GROUP_PAD, WIDTH_PAD), tl.float32)
    lowest = position * 0
    if WINDOW > 0:
        lowest = tl.maximum(position - WINDOW + 1, 0)
    for start in range(lowest // BLOCK * BLOCK, position + 1, BLOCK):
        at = start + tl.arange(0, BLOCK)
        seen = (at >= lowest) & (at <= position)
        page = tl.load(pages + at // PAGE, mask=seen, other=0).to(tl.int64)
        at_key = kv_head * head_stride + (page * PAGE + at % PAGE)[:, None] * WIDTH
        at_key += at_width[None, :]
        inside = seen[:, None] & (at_width[None, :] < WIDTH)
        key = tl.load(keys + at_key, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(values + at_key, mask=inside, other=0.0).to(tl.float32)
        best, total, mixed = _add_block(
            query, key, value, seen, (best, total, mixed), softcap, CAPPED
        )
    result = mixed / total[:, None]
    tl.store(out + at_q, result.to(out.dtype.element_ty), mask=real)
