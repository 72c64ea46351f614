"""Compiled loops over float32 arrays: attention, norms, and moving rows into the cache.

Each output row is computed by loops that see nothing but that row's own inputs, so what a row's
bits depend on can be read off the source: for attention the query, its keys and values, and how
many there are; never the other rows, the page size or the step. Numba compiles the loops once for
this processor and keeps the result on disk. The compiler may reorder the terms of a sum
(``reassoc``) to use vector instructions; it does so once, at compile time, in the same way for
every row. Comparisons with NaN and infinity keep their meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
F = TypeVar("F", bound=Callable[..., Any])

f32 = np.float32
LOG2_E = f32(1.4426950408889634)
LN2_HIGH, LN2_LOW = f32(0.693359375), f32(-2.12194440e-4)
EXP = tuple(
    f32(c)
    for c in (
        1.9875691500e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    )
)
"""The polynomial of Cephes' ``expf`` on [-ln2/2, ln2/2]."""
LARGEST = np.finfo(np.float32).max


def compiled(function: F) -> F:
    """Compile on first use; the GIL is released while it runs."""
    flags = {"contract", "reassoc", "nsz"}
    return cast(F, njit(fastmath=flags, nogil=True, error_model="numpy", cache=True)(function))


@compiled
def attend_rows(
    out: Floats,
    queries: Floats,
    keys: Floats,
    values: Floats,
    slots: Ints,
    begins: Ints,
    ends: Ints,
    softcap: float,
) -> None:
    """Softmax attention of each row over its own range of ``slots``.

    out, queries: [rows, heads, head_dim], queries scaled; keys, values: [kv_heads, cache slots,
    head_dim]; row r sees the cache slots ``slots[begins[r]:ends[r]]``, at least one. Scores
    become ``softcap * tanh(score / softcap)`` where softcap > 0.
    """
    rows, heads, width = queries.shape
    group = heads // keys.shape[0]
    longest = 1
    for row in range(rows):
        longest = max(longest, ends[row] - begins[row])
    weights = np.empty(longest, np.float32)
    bits = np.empty(longest, np.int32)
    for kv_head in range(keys.shape[0]):
        head_keys, head_values = keys[kv_head], values[kv_head]
        for row in range(rows):
            visible = slots[begins[row] : ends[row]]
            for head in range(kv_head * group, (kv_head + 1) * group):
                _scores(weights, queries[row, head], head_keys, visible)
                if softcap > 0.0:
                    _cap(weights, len(visible), f32(softcap))
                total = _exponentials(weights, len(visible), bits)
                mixed = out[row, head]
                _mix(mixed, weights, head_values, visible)
                for i in range(width):
                    mixed[i] /= total


@compiled
def _cap(scores: Floats, count: int, softcap: np.float32) -> None:
    for j in range(count):
        scores[j] = softcap * f32(math.tanh(scores[j] / softcap))


@compiled
def _scores(scores: Floats, query: Floats, keys: Floats, visible: Ints) -> None:
    """``scores[j] = query . keys[visible[j]]``, four keys at a time."""
    whole = len(visible) - len(visible) % 4
    for j in range(0, whole, 4):
        k0, k1 = keys[visible[j]], keys[visible[j + 1]]
        k2, k3 = keys[visible[j + 2]], keys[visible[j + 3]]
        s0, s1, s2, s3 = f32(0), f32(0), f32(0), f32(0)
        for i in range(query.shape[0]):
            s0 += query[i] * k0[i]
            s1 += query[i] * k1[i]
            s2 += query[i] * k2[i]
            s3 += query[i] * k3[i]
        scores[j], scores[j + 1], scores[j + 2], scores[j + 3] = s0, s1, s2, s3
    for j in range(whole, len(visible)):
        key = keys[visible[j]]
        score = f32(0)
        for i in range(query.shape[0]):
            score += query[i] * key[i]
        scores[j] = score


@compiled
def _exponentials(scores: Floats, count: int, bits: NDArray[np.int32]) -> np.float32:
    """Replace the first ``count`` scores by exp(score - largest score); returns their sum."""
    largest = scores[0]
    for j in range(count):
        largest = max(largest, scores[j])
    for j in range(count):
        x = max(scores[j] - largest, f32(-87.0))
        if scores[j] != scores[j]:
            x = scores[j]  # NaN must shout, not vanish in max()
        k = math.floor(x * LOG2_E + f32(0.5))
        r = x - f32(k) * LN2_HIGH
        r = r - f32(k) * LN2_LOW
        p = ((((EXP[0] * r + EXP[1]) * r + EXP[2]) * r + EXP[3]) * r + EXP[4]) * r + EXP[5]
        bits[j] = (np.int32(k) + np.int32(127)) << np.int32(23)
        scores[j] = p * r * r + r + f32(1)
    powers = bits.view(np.float32)
    total = f32(0)
    for j in range(count):
        scores[j] *= powers[j]
    for j in range(count):
        total += scores[j]
    return total


@compiled
def _mix(mixed: Floats, weights: Floats, values: Floats, visible: Ints) -> None:
    """``mixed = sum of weights[j] * values[visible[j]]``, eight keys at a time, in their order."""
    width = mixed.shape[0]
    for i in range(width):
        mixed[i] = f32(0)
    whole = len(visible) - len(visible) % 8
    for j in range(0, whole, 8):
        v0, v1 = values[visible[j]], values[visible[j + 1]]
        v2, v3 = values[visible[j + 2]], values[visible[j + 3]]
        v4, v5 = values[visible[j + 4]], values[visible[j + 5]]
        v6, v7 = values[visible[j + 6]], values[visible[j + 7]]
        w0, w1, w2, w3 = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
        w4, w5, w6, w7 = weights[j + 4], weights[j + 5], weights[j + 6], weights[j + 7]
        for i in range(width):
            mixed[i] += ((w0 * v0[i] + w1 * v1[i]) + (w2 * v2[i] + w3 * v3[i])) + (
                (w4 * v4[i] + w5 * v5[i]) + (w6 * v6[i] + w7 * v7[i])
            )
    for j in range(whole, len(visible)):
        value, weight = values[visible[j]], weights[j]
        for i in range(width):
            mixed[i] += weight * value[i]


@compiled
def rms_norm_rows(out: Floats, x: Floats, scale: Floats, eps: float) -> None:
    """``out = x / sqrt(mean(x^2) + eps) * scale`` for each row. out, x: [rows, width]."""
    width = x.shape[1]
    for row in range(x.shape[0]):
        squares = f32(0)
        for i in range(width):
            squares += x[row, i] * x[row, i]
        inverse = f32(1) / np.sqrt(squares / f32(width) + f32(eps))
        for i in range(width):
            out[row, i] = x[row, i] * inverse * scale[i]


@compiled
def rotate_rows(x: Floats, cos: Floats, sin: Floats) -> None:
    """Rotary embedding in place, halves paired. x: [rows, heads, head_dim]; cos, sin: [rows, ..].

    ``x * cos + (-second half, first half) * sin``, as transformers writes it.
    """
    half = x.shape[2] // 2
    for row in range(x.shape[0]):
        for head in range(x.shape[1]):
            for i in range(half):
                a, b = x[row, head, i], x[row, head, i + half]
                x[row, head, i] = a * cos[row, i] - b * sin[row, i]
                x[row, head, i + half] = b * cos[row, i + half] + a * sin[row, i + half]


@compiled
def gate_rows(out: Floats, gate_up: Floats) -> None:
    """``out = silu(gate) * up``. out: [rows, width]; gate_up: [rows, 2 * width], gate first."""
    width = out.shape[1]
    bits = np.empty(width, np.int32)
    powers = bits.view(np.float32)
    mantissas = np.empty(width, np.float32)
    for row in range(out.shape[0]):
        gate, up = gate_up[row, :width], gate_up[row, width:]
        for i in range(width):
            x = min(max(-gate[i], f32(-87.0)), f32(88.0))
            k = math.floor(x * LOG2_E + f32(0.5))
            r = x - f32(k) * LN2_HIGH
            r = r - f32(k) * LN2_LOW
            p = ((((EXP[0] * r + EXP[1]) * r + EXP[2]) * r + EXP[3]) * r + EXP[4]) * r + EXP[5]
            bits[i] = (np.int32(k) + np.int32(127)) << np.int32(23)
            mantissas[i] = p * r * r + r + f32(1)
        for i in range(width):
            out[row, i] = gate[i] / (f32(1) + mantissas[i] * powers[i]) * up[i]


@compiled
def store_rows(cache: Floats, slots: Ints, rows: Floats) -> None:
    """``cache[:, slots] = rows``. cache: [kv_heads, cache slots, head_dim]; rows alike."""
    for head in range(rows.shape[0]):
        for row in range(rows.shape[1]):
            for i in range(rows.shape[2]):
                cache[head, slots[row], i] = rows[head, row, i]


@compiled
def finite_rows(x: Floats) -> NDArray[np.bool_]:
    """Whether each row is free of NaN and infinity. x: [rows, width] -> [rows]."""
    finite = np.empty(x.shape[0], np.bool_)
    for row in range(x.shape[0]):
        bad = 0
        for i in range(x.shape[1]):
            bad += not (abs(x[row, i]) <= LARGEST)
        finite[row] = bad == 0
    return finite
