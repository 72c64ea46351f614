"""The row kernels of CUDA: a model's linears and norms through `triton_kernels`."""

from __future__ import annotations

import torch
from torch import Tensor

from reference_engine import triton_kernels
from reference_engine.numerics import LinearWeight


class TritonWeight(LinearWeight):
    """A weight matrix as it is, multiplied by the persistent kernel."""

    def __init__(self, weight: Tensor) -> None:
        """weight: [out, in]."""
        self.out_features, self.in_features = weight.shape
        self._weight = weight.detach().contiguous()

    def times(self, x: Tensor) -> Tensor:
        """``x @ weight.T``. x: [rows, in] -> [rows, out]."""
        return triton_kernels.linear(x.contiguous(), self._weight)


class TritonKernels:
    """See `row_kernels.RowKernels`."""

    name = "triton"

    def weight(self, matrix: Tensor) -> LinearWeight:
        """A weight matrix ready for `numerics.linear`. matrix: [out, in]."""
        return TritonWeight(matrix)

    def rms_norm(self, x: Tensor, scale: Tensor | None, eps: float) -> Tensor:
        """See `RowKernels.rms_norm`."""
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        weight = _ones_like_row(rows) if scale is None else scale
        return triton_kernels.rms_norm(rows, weight, eps).view(x.shape)

    def layer_norm(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Tensor:
        """See `RowKernels.layer_norm`."""
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        scale = _ones_like_row(rows) if weight is None else weight
        shift = torch.zeros_like(_ones_like_row(rows)) if bias is None else bias
        return triton_kernels.layer_norm(rows, scale, shift, eps).view(x.shape)


def _ones_like_row(rows: Tensor) -> Tensor:
    return torch.ones(rows.shape[1], dtype=torch.float32, device=rows.device)
