"""What an attention backend is: a plan for each step and a kernel that carries it out."""

from __future__ import annotations

from typing import Any, Final, Protocol, runtime_checkable

import torch
from torch import Tensor

from reference_engine.attention.decode_tables import DecodeTables
from reference_engine.batch import RaggedBatch


class KeyValueSource(Protocol):
    """Where a layer's keys and values are kept."""

    def group_of(self, layer: int) -> int:
        """The page group of a layer."""

    def put(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Keep this step's keys and values. Both: [kv_heads, rows, head_dim]."""

    def rows(self, layer: int) -> tuple[Tensor, Tensor]:
        """All keys and values by cache slot. Each: [kv_heads, slots, head_dim]."""

    def gather(self, layer: int, units: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of cache units. units: [n] -> each [kv_heads, n * unit, head_dim]."""


class AttentionBackend(Protocol):
    """A way to compute attention. The bits of a row depend on the row's own keys and values.

    The type of a plan is the backend's own. It is made once a step for each (window, group) and
    used by every layer that has them.
    """

    name: str
    reads_hidden_keys: bool
    """Whether keys that no row may see are still read, and must then be finite."""
    page_multiple: int
    """Page sizes are a multiple of this."""

    def plan(self, batch: RaggedBatch, window: int | None, group: int) -> Any:
        """What the layers with this window and page group need to know about the batch."""

    def attend(
        self,
        plan: Any,
        source: KeyValueSource,
        layer: int,
        queries: Tensor,
        *,
        scaling: float,
        softcap: float | None,
    ) -> Tensor:
        """Attention of the batch's rows. queries: [heads, rows, head_dim], padding left out.

        Scores are ``scaling * q.k``, then ``softcap * tanh(score / softcap)`` if softcap is given.
        Returns [rows, heads, head_dim].
        """


@runtime_checkable
class DecodePlanner(Protocol):
    """A backend that can plan steps of decodes from tensors whose shapes never change.

    On CUDA the plan may be made of tensor operations only, so that a graph can be captured.
    """

    def plan_decodes(self, tables: DecodeTables, window: int | None, group: int) -> Any:
        """As `AttentionBackend.plan`, for one row a sequence."""


BACKENDS: Final = ("rows", "blocks", "triton", "flash")
"""``rows``: compiled loops, CPU and fp32. ``blocks``: plain torch, CPU. ``triton``: a kernel of our
own, CUDA. ``flash``: the varlen kernel of flash-attn, CUDA and half precision."""


def choose_backend(device: torch.device, dtype: torch.dtype) -> AttentionBackend:
    """The fastest exact backend that serves this device and type here.

    Plain torch is not among those for CUDA: there the library chooses kernels by the batch.
    """
    if device.type == "cuda":
        return _cuda_backend(device, dtype)
    if dtype is torch.float32:
        from reference_engine.attention.rows import RowAttention

        return RowAttention()
    from reference_engine.attention.blocks import BlockAttention

    return BlockAttention()


def _cuda_backend(device: torch.device, dtype: torch.dtype) -> AttentionBackend:
    if dtype in (torch.bfloat16, torch.float16):
        from reference_engine.attention.flash import FlashAttention, installed_kernel

        kernel = installed_kernel()
        if kernel is not None:
            return FlashAttention(kernel, device)
    from reference_engine.attention.paged_triton import PagedTritonAttention

    return PagedTritonAttention(device)
