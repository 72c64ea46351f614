"""Linear and norms on CUDA, in Triton, whose results for a row depend on that row alone.

A library's matrix product picks its tiles, and whether to split the sum over ``K``, from the
number of rows. Here one weight has one tile shape, whatever the batch: each output element is the
sum over ``K`` in blocks of ``BLOCK_K``, first to last, in one program, in fp32. Programs are
persistent: as many as the device has processors, each taking tile after tile. Triton compiles a
kernel anew for arguments that are 1 or a multiple of 16, and for how pointers are aligned; what
follows the batch (the number of rows, the address of the rows) is kept out of that choice.

Under ``TRITON_INTERPRET=1`` the same source runs on a CPU, which is how it is tested without a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK_K: Final = 64
INTERPRETED_PROGRAMS: Final = 3
"""Programs of a persistent kernel where there is no device to count processors of."""


@dataclass(frozen=True, slots=True)
class TileShape:
    """Rows and output columns that one program computes at a time; the same for every batch."""

    rows: int = 64
    columns: int = 64


def tile_shape(out_features: int) -> TileShape:
    """The tile of a weight: wider where there are columns enough to keep a device busy."""
    return TileShape(columns=128 if out_features >= 8192 else 64)


_BY_BATCH: Final = {
    "do_not_specialize": ["rows"],
    "do_not_specialize_on_alignment": ["x", "out"],
}


@triton.jit(**_BY_BATCH)  # type: ignore[untyped-decorator]
def _linear_kernel(  # type: ignore[no-untyped-def]
    x,
    weight,
    out,
    rows,
    columns,
    width,
    x_stride,
    weight_stride,
    out_stride,
    BLOCK_M: tl.constexpr,  # noqa: N803
    BLOCK_N: tl.constexpr,  # noqa: N803
    BLOCK_K: tl.constexpr,  # noqa: N803
    PROGRAMS: tl.constexpr,  # noqa: N803
):
    tiles_n = tl.cdiv(columns, BLOCK_N)
    tiles = tl.cdiv(rows, BLOCK_M) * tiles_n
    for tile in range(tl.program_id(0), tiles, PROGRAMS):
        at_row = (tile // tiles_n) * BLOCK_M + tl.arange(0, BLOCK_M)
        at_column = (tile % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for start in range(0, width, BLOCK_K):
            at_k = start + tl.arange(0, BLOCK_K)
            a = tl.load(
                x + at_row[:, None] * x_stride + at_k[None, :],
                mask=(at_row[:, None] < rows) & (at_k[None, :] < width),
                other=0.0,
            )
            b = tl.load(
                weight + at_column[None, :] * weight_stride + at_k[:, None],
                mask=(at_column[None, :] < columns) & (at_k[:, None] < width),
                other=0.0,
            )
            total = tl.dot(a, b, total, input_precision="ieee")
        tl.store(
            out + at_row[:, None] * out_stride + at_column[None, :],
            total.to(out.dtype.element_ty),
            mask=(at_row[:, None] < rows) & (at_column[None, :] < columns),
        )


@triton.jit(**_BY_BATCH)  # type: ignore[untyped-decorator]
def _rms_norm_kernel(  # type: ignore[no-untyped-def]
    x,
    scale,
    out,
    rows,
    width,
    eps,
    BLOCK: tl.constexpr,  # noqa: N803
    PROGRAMS: tl.constexpr,  # noqa: N803
):
    at = tl.arange(0, BLOCK)
    inside = at < width
    weight = tl.load(scale + at, mask=inside, other=0.0).to(tl.float32)
    for row in range(tl.program_id(0), rows, PROGRAMS):
        values = tl.load(x + row * width + at, mask=inside, other=0.0).to(tl.float32)
        mean = tl.sum(values * values, axis=0) / width
        normed = values * (1.0 / tl.sqrt(mean + eps)) * weight
        tl.store(out + row * width + at, normed.to(out.dtype.element_ty), mask=inside)


@triton.jit(**_BY_BATCH)  # type: ignore[untyped-decorator]
def _layer_norm_kernel(  # type: ignore[no-untyped-def]
    x,
    scale,
    shift,
    out,
    rows,
    width,
    eps,
    BLOCK: tl.constexpr,  # noqa: N803
    PROGRAMS: tl.constexpr,  # noqa: N803
):
    at = tl.arange(0, BLOCK)
    inside = at < width
    weight = tl.load(scale + at, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(shift + at, mask=inside, other=0.0).to(tl.float32)
    for row in range(tl.program_id(0), rows, PROGRAMS):
        values = tl.load(x + row * width + at, mask=inside, other=0.0).to(tl.float32)
        centred = tl.where(inside, values - tl.sum(values, axis=0) / width, 0.0)
        variance = tl.sum(centred * centred, axis=0) / width
        normed = centred * (1.0 / tl.sqrt(variance + eps)) * weight + bias
        tl.store(out + row * width + at, normed.to(out.dtype.element_ty), mask=inside)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """``x @ weight.T``. x: [rows, in]; weight: [out, in], contiguous rows -> [rows, out]."""
    rows, width = x.shape
    columns = weight.shape[0]
    out = x.new_empty(rows, columns)
    tile = tile_shape(columns)
    programs = _programs(x.device)
    _linear_kernel[(programs,)](
        x,
        weight,
        out,
        rows,
        columns,
        width,
        x.stride(0),
        weight.stride(0),
        out.stride(0),
        BLOCK_M=tile.rows,
        BLOCK_N=tile.columns,
        BLOCK_K=BLOCK_K,
        PROGRAMS=programs,
    )
    return out


def rms_norm(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    """``x / sqrt(mean(x^2) + eps) * scale`` in fp32. x: [rows, width], contiguous -> the same."""
    rows, width = x.shape
    out = torch.empty_like(x)
    programs = _programs(x.device)
    _rms_norm_kernel[(programs,)](
        x,
        scale,
        out,
        rows,
        width,
        eps,
        BLOCK=triton.next_power_of_2(width),
        PROGRAMS=programs,
    )
    return out


def layer_norm(x: Tensor, scale: Tensor, shift: Tensor, eps: float) -> Tensor:
    """``(x - mean) / sqrt(var + eps) * scale + shift`` in fp32. x: [rows, width], contiguous."""
    rows, width = x.shape
    out = torch.empty_like(x)
    programs = _programs(x.device)
    _layer_norm_kernel[(programs,)](
        x,
        scale,
        shift,
        out,
        rows,
        width,
        eps,
        BLOCK=triton.next_power_of_2(width),
        PROGRAMS=programs,
    )
    return out


def _programs(device: torch.device) -> int:
    if device.type != "cuda":
        return INTERPRETED_PROGRAMS
    properties: Any = torch.cuda.get_device_properties(device)
    return int(properties.multi_processor_count)
