"""Which code multiplies and norms rows: plain torch with padded rows, or Triton.

This is the one seam at which a model's linears and norms are given their arithmetic. On a CPU
`numerics` keeps a row's bits by padding rows to a tile. A CUDA library picks its tiles, and how it
cuts a sum, from the number of rows, so there each row is computed by `triton_kernels`.
"""

from __future__ import annotations

from typing import Final, Protocol

import torch
from torch import Tensor

from reference_engine import numerics
from reference_engine.device import DeviceRefused


class RowKernels(Protocol):
    """Linear, RMS norm and layer norm whose result for a row depends on that row alone."""

    name: str

    def weight(self, matrix: Tensor) -> numerics.LinearWeight:
        """A weight matrix ready for `numerics.linear`. matrix: [out, in]."""

    def rms_norm(self, x: Tensor, scale: Tensor | None, eps: float) -> Tensor:
        """``x / sqrt(mean(x^2) + eps) * scale`` in fp32. x: [..., width] -> the same, its type."""

    def layer_norm(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Tensor:
        """Layer norm in fp32. x: [..., width] -> the same, its type."""


class TorchKernels:
    """The arithmetic of `numerics`."""

    name = "torch"

    def weight(self, matrix: Tensor) -> numerics.LinearWeight:
        """See `RowKernels.weight`."""
        return numerics.LinearWeight(matrix)

    def rms_norm(self, x: Tensor, scale: Tensor | None, eps: float) -> Tensor:
        """See `RowKernels.rms_norm`."""
        return numerics.rms_norm(x, scale, eps).to(x.dtype)

    def layer_norm(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Tensor:
        """See `RowKernels.layer_norm`."""
        rows = x.float()
        centred = rows - numerics.mean_row(rows)
        normed = centred * torch.rsqrt(numerics.mean_square(centred) + eps)
        if weight is not None:
            normed = normed * weight
        if bias is not None:
            normed = normed + bias
        return normed.to(x.dtype)


TORCH: Final = TorchKernels()


def choose_kernels(device: torch.device) -> RowKernels:
    """Torch on a CPU, Triton on CUDA. Raises DeviceRefused where Triton is not installed."""
    if device.type != "cuda":
        return TORCH
    try:
        from reference_engine.triton_rows import TritonKernels
    except ImportError:
        raise DeviceRefused(
            "the exact kernels for CUDA need Triton, which is not installed: install the extra "
            "`gpu`, or choose --device cpu"
        ) from None
    return TritonKernels()
