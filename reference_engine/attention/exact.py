"""Exact attention, registered with transformers as an attention implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reference_engine.attention.backend import (
    AttentionBackend,
    KeyValueSource,
    choose_backend,
)
from reference_engine.attention.decode_tables import DecodeTables
from reference_engine.batch import RaggedBatch

IMPLEMENTATION: Final = "isobatch_exact"
"""The name under which transformers knows this attention."""


class ExactAttention:
    """The attention of one engine: makes an `AttentionStep` for each batch."""

    def __init__(self, source: KeyValueSource, backend: AttentionBackend) -> None:
        self._source = source
        self._backend = backend

    def step(self, batch: RaggedBatch) -> AttentionStep:
        """Attention over the keys of this engine for one batch."""
        return AttentionStep(batch, self._source, self._backend, self.plan)

    def plan(self, batch: RaggedBatch, window: int | None, group: int) -> Any:
        """The backend's plan for a layer with this window in this page group."""
        return self._backend.plan(batch, window, group)


class AttentionStep:
    """One step's attention: the batch, the place of its keys, and the plans that layers share.

    ``plan`` makes a plan from what ``batch`` is; by default the backend's own, of a `RaggedBatch`.
    """

    def __init__(
        self,
        batch: RaggedBatch | DecodeTables,
        source: KeyValueSource,
        backend: AttentionBackend | None = None,
        plan: Callable[[Any, int | None, int], Any] | None = None,
    ) -> None:
        self._batch = batch
        self._source = source
        self._backend = backend or choose_backend(torch.device("cpu"), torch.float32)
        self._make_plan: Callable[[Any, int | None, int], Any] = plan or self._backend.plan
        self._plans: dict[tuple[int | None, int], Any] = {}

    def attend(
        self,
        layer: int,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        scaling: float,
        window: int | None,
        softcap: float | None,
    ) -> Tensor:
        """Store the step's keys and values, then attend.

        queries: [heads, rows, head_dim]; keys, values: [kv_heads, rows, head_dim]. Rows past the
        batch's tokens are padding: they are not stored and their output is zero.
        Returns [rows, heads, head_dim].
        """
        tokens = self._batch.num_tokens
        self._source.put(layer, keys[:, :tokens], values[:, :tokens])
        plan = self._plan(window, self._source.group_of(layer))
        out = self._backend.attend(
            plan,
            self._source,
            layer,
            queries[:, :tokens],
            scaling=scaling,
            softcap=softcap,
        )
        padding = queries.shape[1] - tokens
        return F.pad(out, (0, 0, 0, 0, 0, padding)) if padding else out

    def _plan(self, window: int | None, group: int) -> Any:
        if (window, group) not in self._plans:
            self._plans[window, group] = self._make_plan(self._batch, window, group)
        return self._plans[window, group]


def exact_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    attention_step: AttentionStep,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in each layer. query: [1, heads, rows, head_dim] and so on.

    Raises NotImplementedError for attention sinks (``s_aux``), which no backend computes.
    """
    if s_aux is not None:
        raise NotImplementedError("attention sinks are not supported")
    layer = module.layer_idx
    assert isinstance(layer, int)  # noqa: S101
    out = attention_step.attend(
        layer,
        query[0],
        key[0],
        value[0],
        scaling=scaling,
        window=sliding_window,
        softcap=softcap,
    )
    return out.unsqueeze(0), None


def register() -> None:
    """Make the implementation known to transformers; harmless when repeated."""
    from transformers import AttentionInterface

    AttentionInterface.register(IMPLEMENTATION, exact_attention)


def positions_tensor(batch: RaggedBatch, rows: int) -> tuple[Tensor, Tensor]:
    """Token ids and positions padded with zeros to ``rows``. Each: [1, rows]."""
    missing = [0] * (rows - batch.num_tokens)
    ids = torch.tensor([[*batch.token_ids, *missing]])
    return ids, torch.tensor([[*batch.positions, *missing]])
