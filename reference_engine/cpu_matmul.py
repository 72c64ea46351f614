"""A matrix product in fp32 whose every output is one chain of fused multiply-adds, in one order.

``out[m, n]`` starts at zero and takes ``x[m, k] * weight[n, k]`` for k = 0, 1, 2, ..., rounded once
a term. Nothing else of the call, neither the number of rows nor their order nor the thread, has a
part in it: a row's bits follow from the source, and are the same on every processor that has
a fused multiply-add.

The weight is packed once into *panels* of `PANEL` output columns, so that a step of k reads two
vectors. A call takes a block of rows that the second-level cache holds, and for each panel goes
over the block in tiles of at most `TILE_ROWS` rows, whose sums stay in registers. While a panel is
multiplied the next one is fetched: with few rows the product runs at the speed of memory.
"""

from __future__ import annotations

import platform
from typing import Any, Final

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic
from numpy.typing import NDArray

Floats = NDArray[np.float32]


_FEATURES: Final = llvm.get_host_cpu_features()

HAS_FMA: Final = bool(_FEATURES.get("fma")) or platform.machine() in ("aarch64", "arm64")
"""Without the instruction the chain of `multiply_rows` would be as exact, but very slow."""

LANES: Final = 16 if _FEATURES.get("avx512f") else 8 if _FEATURES.get("avx2") else 4
"""Floats of a vector register of this processor."""

PANEL: Final = 2 * LANES
TILE_ROWS: Final = 12 if LANES == 16 else 6
"""Two sums a row: 24 of 32 registers, or 12 of 16."""

BLOCK_BYTES: Final = 1 << 19
"""Rows that are multiplied by one panel after another: half a megabyte of them."""

_FLOAT_BYTES: Final = 4


def pack(weight: Floats, packed: Floats) -> None:
    """Copy ``weight`` [out, in] into ``packed`` [panels, in, PANEL], zeros behind the last row."""
    panels, depth, _ = packed.shape
    whole = weight.shape[0] // PANEL
    full = weight[: whole * PANEL].reshape(whole, PANEL, depth)
    packed[:whole] = full.transpose(0, 2, 1)
    if whole < panels:
        packed[whole] = 0.0
        packed[whole, :, : weight.shape[0] - whole * PANEL] = weight[whole * PANEL :].T


def panels_of(out_features: int) -> int:
    """How many panels a weight with so many output columns takes."""
    return -(-out_features // PANEL)


@intrinsic
def _multiply_tile(  # type: ignore[no-untyped-def]
    typingctx, rows, out, out_stride, x, x_stride, panel, depth, ahead, ahead_stride
):
    """One tile: addresses and strides in bytes; 1 to TILE_ROWS rows; ``ahead`` is fetched."""
    signature = types.void(*[types.intp] * 9)

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        rows, *rest = arguments
        done = builder.append_basic_block("done")
        switch = builder.switch(rows, done)
        for count in range(1, TILE_ROWS + 1):
            block = builder.append_basic_block(f"rows{count}")
            switch.add_case(ir.Constant(rows.type, count), block)
            builder.position_at_end(block)
            _emit_tile(builder, count, *rest)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return signature, codegen


def _emit_tile(
    builder: Any,
    count: int,
    out: Any,
    out_stride: Any,
    x: Any,
    x_stride: Any,
    panel: Any,
    depth: Any,
    ahead: Any,
    ahead_stride: Any,
) -> None:
    """The loop over k for ``count`` rows, then the stores."""
    integer, vector = depth.type, ir.VectorType(ir.FloatType(), LANES)
    kind = ir.FunctionType(vector, [vector] * 3)
    fma = get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")
    row_at = [builder.add(x, builder.mul(x_stride, integer(r))) for r in range(count)]
    before, loop = builder.block, builder.append_basic_block("k")
    after = builder.append_basic_block("store")
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(integer)
    sums = [[builder.phi(vector) for _ in range(2)] for _ in range(count)]
    weights_at = builder.add(panel, builder.mul(k, integer(PANEL * _FLOAT_BYTES)))
    weights = [
        builder.load(_pointer(builder, weights_at, half * LANES, vector), align=_FLOAT_BYTES)
        for half in range(2)
    ]
    _emit_fetch(builder, builder.add(ahead, builder.mul(k, ahead_stride)))
    added = []
    for row in range(count):
        at = builder.add(row_at[row], builder.mul(k, integer(_FLOAT_BYTES)))
        entry = builder.load(_pointer(builder, at, 0, ir.FloatType()), align=_FLOAT_BYTES)
        spread = _spread(builder, entry, vector)
        added.append([builder.call(fma, [spread, weights[h], sums[row][h]]) for h in range(2)])
    following = builder.add(k, integer(1))
    k.add_incoming(integer(0), before)
    k.add_incoming(following, loop)
    for row in range(count):
        for half in range(2):
            sums[row][half].add_incoming(ir.Constant(vector, None), before)
            sums[row][half].add_incoming(added[row][half], loop)
    builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)
    builder.position_at_end(after)
    for row in range(count):
        at = builder.add(out, builder.mul(out_stride, integer(row)))
        for half in range(2):
            to = _pointer(builder, at, half * LANES, vector)
            builder.store(added[row][half], to, align=_FLOAT_BYTES)


def _pointer(builder: Any, address: Any, floats: int, kind: Any) -> Any:
    at = builder.add(address, address.type(floats * _FLOAT_BYTES))
    return builder.inttoptr(at, kind.as_pointer())


def _spread(builder: Any, entry: Any, vector: Any) -> Any:
    """A vector of ``entry`` in every lane."""
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), entry, ir.IntType(32)(0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), mask)


def _emit_fetch(builder: Any, address: Any) -> None:
    """Ask for two cache lines for the second-level cache; an address beyond memory is harmless."""
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    fetch = get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    for line in (0, 64):
        at = builder.inttoptr(builder.add(address, address.type(line)), byte)
        builder.call(fetch, [at, number(0), number(2), number(1)])


@njit(nogil=True, error_model="numpy", cache=True)  # type: ignore[untyped-decorator]
def multiply_rows(out: Floats, x: Floats, packed: Floats, first: int, last: int) -> None:
    """``out = x @ weight.T`` in the columns of the panels from ``first`` up to ``last``.

    out: [rows, out_features]; x: [rows, in]; packed: [panels, in, PANEL], as `pack` left it. All
    are contiguous.
    """
    rows, depth = x.shape
    columns = out.shape[1]
    edge = np.empty((TILE_ROWS, PANEL), np.float32)
    row_bytes, panel_bytes = depth * 4, depth * PANEL * 4
    block_rows = max(TILE_ROWS, BLOCK_BYTES // row_bytes // TILE_ROWS * TILE_ROWS)
    for start in range(0, rows, block_rows):
        stop = min(rows, start + block_rows)
        tiles = -(-(stop - start) // TILE_ROWS)
        ahead_stride = -(-PANEL * 4 // tiles)
        for panel in range(first, last):
            column = panel * PANEL
            at = packed.ctypes.data + panel * panel_bytes
            for tile in range(tiles):
                row = start + (stop - start) * tile // tiles
                count = start + (stop - start) * (tile + 1) // tiles - row
                source = x.ctypes.data + row * row_bytes
                ahead = at + panel_bytes + tile * ahead_stride * depth
                whole = column + PANEL <= columns
                to = out.ctypes.data + (row * columns + column) * 4
                _multiply_tile(
                    count,
                    to if whole else edge.ctypes.data,
                    (columns if whole else PANEL) * 4,
                    source,
                    row_bytes,
                    at,
                    depth,
                    ahead,
                    ahead_stride,
                )
                if not whole:
                    out[row : row + count, column:] = edge[:count, : columns - column]
