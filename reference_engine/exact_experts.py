"""Mixture-of-experts layers whose answer for a token does not depend on the others.

Which tokens share an expert changes with the batch, and with it the number of rows of every
product. Here each expert's rows are padded to the row tile, an expert's activation is computed on
the padded rows, and a token's experts are added up in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from reference_engine import numerics
from reference_engine.row_kernels import TORCH, RowKernels


class ExactRouter(nn.Module):
    """Softmax over the experts, the best ``top_k`` of them, ties to the lowest number."""

    def __init__(
        self, weight: Tensor, top_k: int, *, normalised: bool, kernels: RowKernels = TORCH
    ) -> None:
        super().__init__()
        self.matrix = kernels.weight(weight)
        self.top_k = top_k
        self.normalised = normalised

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x: [rows, width] -> logits [rows, experts], weights and experts, both [rows, top_k]."""
        logits = numerics.linear(x.reshape(-1, x.shape[-1]), self.matrix)
        logprobs, order = torch.sort(
            numerics.log_softmax(logits), dim=-1, descending=True, stable=True
        )
        weights = numerics.exponential(logprobs)[:, : self.top_k]
        if self.normalised:
            weights = weights / numerics.row_sum(weights)
        return logits, weights.to(logits.dtype), order[:, : self.top_k]


class ExactExperts(nn.Module):
    """Gated experts: ``down(act(gate(x)) * up(x))``, weighted and added up."""

    def __init__(self, original: Any, kernels: RowKernels = TORCH) -> None:
        super().__init__()
        self.gate_up = [kernels.weight(w) for w in original.gate_up_proj]
        self.down = [kernels.weight(w) for w in original.down_proj]
        self.act_fn = original.act_fn

    def forward(self, x: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
        """x: [rows, width]; experts, weights: [rows, top_k] -> [rows, width]."""
        out = torch.zeros_like(x)
        for expert, rows, places in _assignments(experts, len(self.gate_up)):
            tile = numerics.pad_rows(x[rows])
            gate, up = self.gate_up[expert].times(tile).chunk(2, dim=-1)
            mixed = self.down[expert].times(self.act_fn(gate.contiguous()) * up)[: len(rows)]
            out.index_add_(0, rows, mixed * weights[rows, places, None])
        return out


def _assignments(experts: Tensor, count: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """For each expert that is used: its number, its rows, and their place among the top_k."""
    for expert in range(count):
        rows, places = (experts == expert).nonzero(as_tuple=True)
        if len(rows):
            yield expert, rows, places


def exact_router(module: nn.Module, kernels: RowKernels) -> ExactRouter | None:
    """The twin that agrees with a router on random rows; None if it is no router of this kind."""
    weight, top_k = getattr(module, "weight", None), getattr(module, "top_k", None)
    if "Router" not in type(module).__name__ or weight is None or not isinstance(top_k, int):
        return None
    if getattr(module, "bias", None) is not None:
        return None
    rows = _random_rows(weight.shape[1]).to(weight.device, weight.dtype)
    try:
        _, scores, chosen = module(rows)
    except (TypeError, ValueError):
        return None
    for normalised in (False, True):
        twin = ExactRouter(weight, top_k, normalised=normalised, kernels=kernels)
        _, twin_scores, twin_chosen = twin(rows)
        if torch.equal(chosen, twin_chosen) and torch.allclose(scores, twin_scores, atol=1e-5):
            return twin
    return None


def exact_experts(module: nn.Module, kernels: RowKernels) -> ExactExperts | None:
    """The twin that agrees with a layer of experts on random rows; None if it is another kind."""
    parts = [getattr(module, name, None) for name in ("gate_up_proj", "down_proj")]
    if "Experts" not in type(module).__name__ or any(p is None or p.ndim != 3 for p in parts):
        return None
    if not callable(getattr(module, "act_fn", None)):
        return None
    twin = ExactExperts(module, kernels)
    gate_up: Any = module.gate_up_proj
    rows = _random_rows(twin.gate_up[0].in_features).to(gate_up.device, gate_up.dtype)
    chosen = torch.arange(len(rows), device=rows.device)[:, None] % len(twin.gate_up)
    weights = torch.ones_like(chosen, dtype=rows.dtype)
    expected = module(rows, chosen, weights)
    agrees = torch.allclose(twin(rows, chosen, weights), expected, rtol=1e-3, atol=1e-4)
    return twin if agrees else None


def _random_rows(width: int) -> Tensor:
    return torch.randn(8, width, generator=torch.Generator().manual_seed(0))
