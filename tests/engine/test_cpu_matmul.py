"""The matrix product of the CPU: right, and a row's bits follow from the row alone."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest
import torch

from reference_engine.cpu_matmul import PANEL, TILE_ROWS
from reference_engine.numerics import LinearWeight, linear

SHAPES = [(1, 1), (PANEL - 1, 7), (PANEL, 96), (PANEL + 1, 100), (3 * PANEL, 513), (50, 2048)]


def rows_of(count: int, width: int) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(width))


def weight_of(out_features: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(out_features)
    return torch.randn(out_features, width, generator=generator)


@pytest.mark.parametrize(("out_features", "width"), SHAPES)
def test_any_number_of_rows_gives_each_row_the_bits_it_has_alone(
    out_features: int, width: int
) -> None:
    """With tiles of every size, several blocks of rows and last panels that are not full."""
    matrix = weight_of(out_features, width)
    weight, rows = LinearWeight(matrix), rows_of(300, width)
    alone = torch.cat([linear(rows[i : i + 1], weight) for i in range(len(rows))])
    expected = rows.double() @ matrix.double().T
    torch.testing.assert_close(alone.double(), expected, rtol=0, atol=2e-6 * width)
    for count in (*range(1, 2 * TILE_ROWS + 2), 100, 300):
        assert torch.equal(linear(rows[:count], weight), alone[:count]), f"{count} rows"
        assert torch.equal(linear(rows[-count:], weight), alone[-count:]), f"last {count} rows"


def test_neighbours_of_nan_leave_a_row_alone() -> None:
    weight, rows = LinearWeight(weight_of(70, 96)), rows_of(25, 96)
    expected = linear(rows, weight)
    for kept in (0, 11, 12, 24):
        poisoned = torch.full_like(rows, float("nan"))
        poisoned[kept] = rows[kept]
        got = linear(poisoned, weight)
        assert torch.equal(got[kept], expected[kept])
        assert bool(got[kept - 1].isnan().all()), "NaN must not be lost"


def digest() -> str:
    """Of products of several shapes."""
    products = [linear(rows_of(29, k), LinearWeight(weight_of(n, k))) for n, k in SHAPES[-3:]]
    return hashlib.sha256(b"".join(p.numpy().tobytes() for p in products)).hexdigest()


@pytest.mark.slow
def test_a_processor_without_wide_vectors_gives_the_same_bits() -> None:
    """The same product compiled for a processor that has AVX2 and fused multiply-add alone."""
    code = "from tests.engine.test_cpu_matmul import digest; print(digest())"
    env = os.environ | {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma,-avx512f"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == digest()
