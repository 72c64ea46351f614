"""The Triton kernels against plain references, bit for bit, by Triton's own interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

pytest.importorskip("triton", reason="Triton is not installed; the extra `gpu` brings it")

from reference_engine import triton_kernels
from reference_engine.triton_kernels import BLOCK_K, tile_shape
from tests.gpu.conftest import HAS_GPU

DEVICE = "cuda" if HAS_GPU else "cpu"
WIDTHS = [1, 63, 64, 65, 200]
ROWS = [1, 2, 17, 63, 64, 65]


def tiled_reference(x: torch.Tensor, weight: torch.Tensor) -> NDArray[np.float32]:
    """The product in plain numpy: the same tiles, the sum over K in the same blocks and order."""
    tile = tile_shape(weight.shape[0])
    rows, columns, width = x.shape[0], weight.shape[0], x.shape[1]
    up = [-(-n // b) * b for n, b in ((rows, tile.rows), (columns, tile.columns), (width, BLOCK_K))]
    a, b = np.zeros((up[0], up[2]), np.float32), np.zeros((up[1], up[2]), np.float32)
    a[:rows, :width], b[:columns, :width] = x.numpy(), weight.numpy()
    out = np.zeros((up[0], up[1]), np.float32)
    for m in range(0, up[0], tile.rows):
        for n in range(0, up[1], tile.columns):
            total = np.zeros((tile.rows, tile.columns), np.float32)
            for k in range(0, up[2], BLOCK_K):
                left = a[m : m + tile.rows, k : k + BLOCK_K]
                right = b[n : n + tile.columns, k : k + BLOCK_K].T
                total = np.matmul(left, right) + total
            out[m : m + tile.rows, n : n + tile.columns] = total
    return out[:rows, :columns]


def whole_numbers(*shape: int, seed: int) -> torch.Tensor:
    """Small whole numbers: sums of their products are exact in fp32, in any order."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-8, 9, shape, generator=generator).float().to(DEVICE)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("width", WIDTHS)
def test_linear_is_the_product_wherever_arithmetic_is_exact(rows: int, width: int) -> None:
    """Every index, mask and tile edge: equal to integer arithmetic, to the last bit."""
    columns = 1 + 37 * rows % 131
    x, weight = whole_numbers(rows, width, seed=1), whole_numbers(columns, width, seed=2)
    got = triton_kernels.linear(x, weight)
    assert torch.equal(got.long().cpu(), x.long().cpu().matmul(weight.long().cpu().T))


@pytest.mark.skipif(HAS_GPU, reason="a GPU's tensor cores need not add as numpy does")
@pytest.mark.parametrize(("rows", "columns", "width"), [(1, 64, 576), (3, 40, 96), (65, 130, 200)])
def test_linear_has_the_bits_of_the_plain_tiled_product(
    rows: int, columns: int, width: int
) -> None:
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, width, generator=generator)
    weight = torch.randn(columns, width, generator=generator)
    got = triton_kernels.linear(x, weight).numpy()
    assert np.array_equal(got, tiled_reference(x, weight))


@pytest.mark.parametrize("rows", ROWS)
def test_a_row_of_a_linear_does_not_depend_on_its_company(rows: int) -> None:
    """Its bits are those of the row alone, at both ends of the batch, among NaN too."""
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(70, 100, generator=generator).to(DEVICE)
    x = torch.randn(rows, 100, generator=generator).to(DEVICE)
    alone = triton_kernels.linear(x[:1].contiguous(), weight)
    for position, neighbours in ((0, x), (rows - 1, torch.full_like(x, float("nan")))):
        batch = neighbours.clone()
        batch[position] = x[0]
        assert torch.equal(triton_kernels.linear(batch, weight)[position], alone[0])


@pytest.mark.parametrize("width", WIDTHS)
def test_rms_norm_agrees_with_fp64_and_rows_stand_alone(width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    x = torch.randn(7, width, generator=generator)
    scale = torch.randn(width, generator=generator)
    got = triton_kernels.rms_norm(x.to(DEVICE), scale.to(DEVICE), 1e-5).cpu()
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * scale
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-6)
    for row in (0, 6):
        alone = triton_kernels.rms_norm(x[row : row + 1].to(DEVICE), scale.to(DEVICE), 1e-5)
        assert torch.equal(alone[0].cpu(), got[row])
