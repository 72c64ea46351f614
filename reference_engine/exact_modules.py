"""Exact replacements for the layers of a transformers model that reduce floats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from reference_engine import numerics
from reference_engine.exact_experts import ExactExperts, ExactRouter, exact_experts, exact_router


class ExactLinear(nn.Module):
    """`nn.Linear` through `numerics.linear`. The original's matrix is not kept."""

    def __init__(self, original: nn.Linear) -> None:
        super().__init__()
        self.matrix = numerics.LinearWeight(original.weight)
        self.bias = original.bias
        self.in_features = original.in_features
        self.out_features = original.out_features

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in_features] -> [..., out_features]."""
        return numerics.linear(x, self.matrix, self.bias)


class ExactRMSNorm(nn.Module):
    """Root mean square norm; ``unit_offset`` adds 1 to the weight, as Gemma does."""

    def __init__(self, weight: Tensor | None, eps: float, *, unit_offset: bool) -> None:
        super().__init__()
        self.eps = eps
        scale = None if weight is None else weight.detach().float()
        if scale is not None and unit_offset:
            scale = 1.0 + scale
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., width] -> [..., width]."""
        return numerics.rms_norm(x, self.scale, self.eps).to(x.dtype)


class ExactLayerNorm(nn.Module):
    """Layer norm with or without weight and bias."""

    def __init__(self, weight: Tensor | None, bias: Tensor | None, eps: float) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., width] -> [..., width]."""
        rows = x.float()
        centred = rows - numerics.mean_row(rows)
        normed = centred * torch.rsqrt(numerics.mean_square(centred) + self.eps)
        if self.weight is not None:
            normed = normed * self.weight
        if self.bias is not None:
            normed = normed + self.bias
        return normed.to(x.dtype)


class UnknownLayer(ValueError):
    """The model has a layer that the engine cannot make exact."""


def make_exact(model: nn.Module) -> None:
    """Replace every linear and norm inside ``model``. Raises UnknownLayer by name for the rest."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            exact = _exact_twin(child)
            if exact is not None:
                setattr(parent, name, exact)
    for path, module in model.named_modules():
        if not list(module.children()) and not _is_known(module):
            kind = type(module).__name__
            raise UnknownLayer(f"layer {path} is a {kind}, which the engine cannot make exact")


def linear_weights(model: nn.Module) -> Iterator[numerics.LinearWeight]:
    """Every weight matrix of an exact model."""
    for module in model.modules():
        for value in vars(module).values():
            for item in value if isinstance(value, list) else (value,):
                if isinstance(item, numerics.LinearWeight):
                    yield item


def _exact_twin(module: nn.Module) -> nn.Module | None:
    if type(module) is nn.Linear:
        return ExactLinear(module)
    if type(module).__name__ == "Conv1D" and isinstance(module.weight, Tensor):
        return ExactLinear(_linear_of(module.weight, module.bias))
    if type(module) is nn.LayerNorm:
        return ExactLayerNorm(module.weight, module.bias, module.eps)
    if (experts := exact_router(module) or exact_experts(module)) is not None:
        return experts
    if "RMSNorm" in type(module).__name__:
        return _exact_rms_norm(module)
    return None


def _linear_of(weight: Tensor, bias: Any) -> nn.Linear:
    """GPT-2's layout: a linear whose weight is [in, out]."""
    linear = nn.Linear(weight.shape[0], weight.shape[1], device="meta")
    linear.weight = nn.Parameter(weight.detach().T.contiguous(), requires_grad=False)
    linear.bias = bias
    return linear


def _exact_rms_norm(module: nn.Module) -> ExactRMSNorm:
    """The twin that agrees with the original on random rows: families scale in different ways."""
    weight = getattr(module, "weight", None)
    eps = getattr(module, "variance_epsilon", None) or getattr(module, "eps", None)
    if weight is not None and isinstance(eps, float):
        generator = torch.Generator().manual_seed(0)
        rows = torch.randn(4, weight.shape[0], generator=generator)
        expected = module(rows.to(weight.dtype)).float()
        for unit_offset in (False, True):
            twin = ExactRMSNorm(weight, eps, unit_offset=unit_offset)
            if torch.allclose(twin(rows.to(weight.dtype)).float(), expected, rtol=1e-3, atol=1e-5):
                return twin
    raise UnknownLayer(f"the norm {type(module).__name__} is of a kind the engine does not know")


def _is_known(module: nn.Module) -> bool:
    if isinstance(module, (ExactLinear, ExactRMSNorm, ExactLayerNorm, nn.Embedding, nn.Dropout)):
        return True
    if isinstance(module, (ExactRouter, ExactExperts, nn.Identity, nn.ModuleList)):
        return True
    kind = type(module)
    is_activation = "activation" in kind.__module__
    return is_activation or kind.__name__.endswith("RotaryEmbedding")
