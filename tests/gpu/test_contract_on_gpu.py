"""The whole contract on a real device. Without one these are reported as not run."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed; the extra `gpu` brings it")

from reference_engine import triton_kernels
from reference_engine.attention.exact import AttentionStep
from reference_engine.attention.flash import FlashAttention, installed_kernel
from reference_engine.batch import BatchBuilder, BatchSequence

pytestmark = pytest.mark.gpu
ROWS = [1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("columns", "width"), [(576, 576), (1536, 576), (576, 1536)])
def test_a_linear_row_has_its_own_bits_on_the_device(
    dtype: torch.dtype, columns: int, width: int
) -> None:
    """Alone, or anywhere among 1 to 257 rows."""
    torch.manual_seed(0)
    weight = torch.randn(columns, width, device="cuda", dtype=dtype)
    row = torch.randn(1, width, device="cuda", dtype=dtype)
    alone = triton_kernels.linear(row, weight)
    for rows in ROWS:
        for position in {0, rows // 2, rows - 1}:
            batch = torch.randn(rows, width, device="cuda", dtype=dtype)
            batch[position] = row[0]
            assert torch.equal(triton_kernels.linear(batch, weight)[position], alone[0])


def test_a_captured_linear_has_the_bits_of_an_eager_one() -> None:
    torch.manual_seed(0)
    weight = torch.randn(576, 576, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(8, 576, device="cuda", dtype=torch.bfloat16)
    eager = triton_kernels.linear(x, weight)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = triton_kernels.linear(x, weight)
    graph.replay()
    assert torch.equal(captured, eager)


class _Rows:
    """Keys and values of one layer on the device."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self._rows = keys, values

    def group_of(self, layer: int) -> int:
        return 0

    def put(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """They are there already."""

    def rows(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._rows

    def gather(self, layer: int, units: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        raise NotImplementedError


@pytest.mark.parametrize("neighbours", [0, 1, 43, 44, 45, 63])
def test_a_flash_row_has_its_own_bits_on_the_device(neighbours: int) -> None:
    """A decode among others, and the same position inside a chunk, have one pattern of bits."""
    kernel = installed_kernel()
    if kernel is None:
        pytest.skip("not run: flash-attn is not installed")
    torch.manual_seed(0)
    page, kv_heads, heads, width, context = 256, 2, 6, 64, 300
    pages = 2 * (neighbours + 1)
    keys, values = torch.randn(
        2, kv_heads, (pages + 1) * page, width, device="cuda", dtype=torch.bfloat16
    )
    query = torch.randn(heads, 1, width, device="cuda", dtype=torch.bfloat16)

    def last_row(counts: list[int]) -> torch.Tensor:
        sequences = [
            BatchSequence(tuple(range(count)), context - count, [[2 * i + 1, 2 * i + 2]])
            for i, count in enumerate(counts)
        ]
        batch = BatchBuilder(page).build(sequences)
        queries = torch.randn(heads, batch.num_tokens, width, device="cuda", dtype=torch.bfloat16)
        queries[:, counts[0] - 1] = query[:, 0]
        step = AttentionStep(batch, _Rows(keys, values), FlashAttention(kernel))
        none = torch.empty(kv_heads, batch.num_tokens, width, device="cuda", dtype=torch.bfloat16)
        out = step.attend(0, queries, none, none, scaling=0.125, window=None, softcap=None)
        return out[counts[0] - 1]

    alone = last_row([1])
    assert torch.equal(last_row([1] * (neighbours + 1)), alone)
    assert torch.equal(last_row([17] + [1] * neighbours), alone)
    assert torch.equal(last_row([context]), alone)
