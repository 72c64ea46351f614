"""Faster twins of the two blocks that most decoder layers are made of, for CPU and fp32.

The twins multiply by one matrix where the originals multiply by two or three, and do the rest in
one compiled loop each. They are used for blocks of known classes only, and only after they have
agreed with the original on random rows; any other block stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from reference_engine import cpu_kernels
from reference_engine.attention.exact import AttentionStep
from reference_engine.batch import BatchBuilder, BatchSequence
from reference_engine.exact_modules import ExactLinear
from reference_engine.kv_store import StepKeys
from reference_engine.numerics import KEY_BLOCK

ATTENTIONS: Final = ("LlamaAttention", "MistralAttention", "Qwen2Attention")
GATED_MLPS: Final = ("LlamaMLP", "MistralMLP", "Qwen2MLP", "Qwen3MLP")
_ROWS: Final = 9


class FusedGatedMLP(nn.Module):
    """``down(silu(gate(x)) * up(x))`` with gate and up in one matrix."""

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.gate_up_proj = ExactLinear(_stacked([original.gate_proj, original.up_proj]))
        self.down_proj = ExactLinear(original.down_proj)

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., hidden] -> [..., hidden]."""
        gate_up = self.gate_up_proj(x)
        out = gate_up.new_empty(*x.shape[:-1], self.down_proj.in_features)
        cpu_kernels.gate_rows(out.flatten(0, -2).numpy(), gate_up.flatten(0, -2).numpy())
        result: Tensor = self.down_proj(out)
        return result


class FusedAttention(nn.Module):
    """Grouped attention with rotary positions, queries, keys and values from one matrix.

    ``settings`` are the keyword arguments with which the original calls `AttentionStep.attend`.
    """

    def __init__(self, original: Any, settings: dict[str, Any]) -> None:
        super().__init__()
        self.layer_idx: int = original.layer_idx
        self.head_dim: int = original.head_dim
        self.kv_heads = original.k_proj.out_features // self.head_dim
        self.heads = original.q_proj.out_features // self.head_dim
        self.settings = settings
        self.qkv_proj = ExactLinear(_stacked([original.q_proj, original.k_proj, original.v_proj]))
        self.o_proj = ExactLinear(original.o_proj)

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        *,
        attention_step: AttentionStep,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """hidden_states: [1, rows, hidden]; position_embeddings: two of [1, rows, head_dim]."""
        qkv = self.qkv_proj(hidden_states)[0].unflatten(-1, (-1, self.head_dim))
        rotated = self.heads + self.kv_heads
        cos, sin = (x[0].numpy() for x in position_embeddings)
        cpu_kernels.rotate_rows(qkv[:, :rotated].numpy(), cos, sin)
        by_head = qkv.transpose(0, 1)
        out = attention_step.attend(
            self.layer_idx,
            by_head[: self.heads],
            by_head[self.heads : rotated],
            by_head[rotated:],
            **self.settings,
        )
        return self.o_proj(out.flatten(1).unsqueeze(0)), None


def fuse(model: nn.Module) -> int:
    """Replace the blocks that have a twin, before `make_exact`; returns how many were replaced."""
    replaced = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            twin = _twin(child)
            if twin is not None:
                setattr(parent, name, twin)
                replaced += 1
    return replaced


def _twin(block: nn.Module) -> nn.Module | None:
    """The faster twin of a block in fp32 on a CPU, if it has one that agrees with it."""
    kind = type(block).__name__
    if kind not in (*ATTENTIONS, *GATED_MLPS):
        return None
    weight = next(block.parameters())
    if weight.device.type != "cpu" or weight.dtype is not torch.float32:
        return None
    with torch.no_grad():
        return _mlp_twin(block) if kind in GATED_MLPS else _attention_twin(block)


def _mlp_twin(block: Any) -> nn.Module | None:
    twin = FusedGatedMLP(block)
    rows = _random(1, _ROWS, block.gate_proj.in_features)
    return twin if _agree(twin(rows), block(rows)) else None


def _attention_twin(block: Any) -> nn.Module | None:
    """Run the original once, note what it asks of `attend`, and try the twin with the same."""
    rows = _random(1, _ROWS, block.q_proj.in_features)
    angles = _random(1, _ROWS, block.head_dim // 2).repeat(1, 1, 2)
    embeddings = (angles.cos(), angles.sin())
    recorder = _Recorder(block.layer_idx)
    expected, _ = block(rows, embeddings, attention_mask=None, attention_step=recorder)
    twin = FusedAttention(block, recorder.settings)
    got, _ = twin(rows, embeddings, attention_step=_Recorder(block.layer_idx))
    return twin if _agree(got, expected) else None


class _Recorder(AttentionStep):
    """One sequence of a few tokens; remembers the settings of the last call."""

    def __init__(self, layer: int) -> None:
        sequence = BatchSequence(tuple(range(_ROWS)), 0, ((0,),), 1)
        super().__init__(BatchBuilder(KEY_BLOCK).build([sequence]), StepKeys(layer + 1))
        self.settings: dict[str, Any] = {}

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, **settings: Any
    ) -> Tensor:
        self.settings = settings
        return super().attend(layer, queries, keys, values, **settings)


def _stacked(linears: Sequence[nn.Linear]) -> nn.Linear:
    """One linear whose outputs are those of ``linears`` one after another."""
    biases = [linear.bias for linear in linears]
    outputs = sum(linear.out_features for linear in linears)
    stacked = nn.Linear(linears[0].in_features, outputs, bias=False, device="meta")
    weights: list[Tensor] = [linear.weight.detach() for linear in linears]
    stacked.weight = nn.Parameter(torch.cat(weights), False)
    if any(bias is not None for bias in biases):
        parts: list[Tensor] = [
            torch.zeros(linear.out_features) if linear.bias is None else linear.bias
            for linear in linears
        ]
        stacked.bias = nn.Parameter(torch.cat(parts), False)
    return stacked


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _agree(got: Tensor, expected: Tensor) -> bool:
    return torch.allclose(got, expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max() + 1))
