"""The probe's weights with a KV cache that lies open: the place where faults are put in.

A plain torch decoder for requests of equal length: every stored key and value, what each layer may
see, the position a token gets and the cache a layer reads can be changed between two steps, as a
broken engine would.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad, silu

from reference_engine.probe.config import ProbeConfig
from reference_engine.probe.layout import layout
from reference_engine.probe.weights import compile_weights

_EPSILON: Final = 1e-6
_SPARE_SLOTS: Final = 2  # for entries that a fault adds


@dataclass(slots=True)
class OpenCache:
    """Keys and values of a batch, and how they are read.

    ``keys[l]``, ``values[l]``: [requests, kv_heads, capacity, head_dim], keys already rotated.
    ``visible[l]``: [requests, capacity]. The first ``used`` slots were written, ``slot_positions``
    [capacity] by which tokens; ``position`` is the next token's, the same for all requests. The
    rest is what a broken engine gets wrong: the error of new tokens' positions, the layer whose
    cache a layer reads instead of its own, query heads dealt out to KV heads in turn instead of in
    groups, a new token that does not see itself, windows larger by ``window_error``.
    """

    keys: list[Tensor]
    values: list[Tensor]
    visible: list[Tensor]
    slot_positions: Tensor
    used: int
    position: int
    position_shift: int = 0
    read_layer: dict[int, int] = field(default_factory=dict)
    heads_in_turn: bool = False
    sees_itself: bool = True
    window_error: int = 0

    def copy(self) -> OpenCache:
        """A cache of its own with the same content."""
        return replace(
            self,
            keys=[store.clone() for store in self.keys],
            values=[store.clone() for store in self.values],
            visible=[shown.clone() for shown in self.visible],
            slot_positions=self.slot_positions.clone(),
            read_layer=dict(self.read_layer),
        )

    def keep(self, rows: Tensor) -> None:
        """Forget all requests but ``rows``, a mask [requests]."""
        self.keys = [store[rows] for store in self.keys]
        self.values = [store[rows] for store in self.values]
        self.visible = [shown[rows] for shown in self.visible]


class CacheModel:
    """A probe in float32 on plain torch."""

    def __init__(self, config: ProbeConfig) -> None:
        self.config = config
        self.hidden_size = layout(config).hidden_size
        self._weights = {
            name: torch.from_numpy(array).float() for name, array in compile_weights(config).items()
        }
        half = config.head_dim // 2
        exponents = torch.arange(half, dtype=torch.float64) / half
        self._thetas = config.rope_theta**-exponents
        self._deal = torch.arange(config.heads).reshape(-1, config.kv_heads).T.flatten()

    def prefill(
        self, ids: Tensor, answer_tokens: int, sees_ahead: int = 0
    ) -> tuple[OpenCache, Tensor]:
        """Read ``ids`` [requests, tokens]; returns the cache and the last logits.

        The cache has room for ``answer_tokens`` more. ``sees_ahead`` is how many later positions a
        broken mask shows to every token.
        """
        requests, tokens = ids.shape
        causal = torch.ones(tokens, tokens, dtype=torch.bool).tril(sees_ahead)
        hidden = self._weights["model.embed_tokens.weight"][ids]
        positions = torch.arange(tokens)
        spare = answer_tokens + _SPARE_SLOTS
        slot_positions = torch.arange(tokens + spare)
        cache = OpenCache([], [], [], slot_positions, used=tokens, position=tokens)
        room = (0, 0, 0, spare)
        for layer in range(self.config.layers):
            query, key, value = self._project(hidden, layer, positions)
            cache.keys.append(pad(key, room))
            cache.values.append(pad(value, room))
            cache.visible.append(
                pad(torch.ones(requests, tokens, dtype=torch.bool), room[2:], value=False)
            )
            window = self.config.window(layer)
            mask = causal if window is None else causal.triu(1 - window)
            read = self._attend(query, key, value, mask.expand(requests, tokens, tokens))
            hidden = self._finish(hidden, read, layer)
        return cache, self._logits(hidden[:, -1])

    def step(self, ids: Tensor, cache: OpenCache) -> Tensor:
        """Add one token a request, ``ids`` [requests], to the cache; returns logits."""
        hidden = self._weights["model.embed_tokens.weight"][ids][:, None]
        positions = torch.tensor([cache.position + cache.position_shift])
        cache.slot_positions[cache.used] = cache.position
        for layer in range(self.config.layers):
            query, key, value = self._project(hidden, layer, positions)
            cache.keys[layer][:, :, cache.used] = key[:, :, 0]
            cache.values[layer][:, :, cache.used] = value[:, :, 0]
            cache.visible[layer][:, cache.used] = cache.sees_itself
            source = cache.read_layer.get(layer, layer)
            shown = cache.visible[source]
            if (window := self.config.window(layer)) is not None:
                oldest = cache.position + 1 - window - cache.window_error
                shown = shown & (cache.slot_positions >= oldest)
            read = self._attend(
                query[:, self._deal] if cache.heads_in_turn else query,
                cache.keys[source],
                cache.values[source],
                shown[:, None],
            )
            if cache.heads_in_turn:
                heads = read.reshape(len(ids), 1, -1, self.config.head_dim)
                read = heads[:, :, torch.argsort(self._deal)].flatten(-2)
            hidden = self._finish(hidden, read, layer)
            cache.visible[layer][:, cache.used] = True
        cache.position += 1
        cache.used += 1
        return self._logits(hidden[:, 0])

    def _project(self, hidden: Tensor, layer: int, positions: Tensor) -> tuple[Tensor, ...]:
        """Rotated queries and keys and plain values, each [requests, heads, tokens, head_dim]."""
        prefix = f"model.layers.{layer}."
        normed = self._norm(hidden, prefix + "input_layernorm.weight")
        shape = (*hidden.shape[:2], -1, self.config.head_dim)
        projected = []
        for name in "qkv":
            projection = f"{prefix}self_attn.{name}_proj."
            made = normed @ self._weights[projection + "weight"].T
            if (bias := self._weights.get(projection + "bias")) is not None:
                made = made + bias
            projected.append(made.reshape(shape).transpose(1, 2))
        angles = (positions.double()[:, None] * self._thetas).float()
        cos, sin = angles.cos(), angles.sin()
        return _rotate(projected[0], cos, sin), _rotate(projected[1], cos, sin), projected[2]

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, visible: Tensor) -> Tensor:
        """Masked attention; ``visible`` [requests, queries, slots]; returns [.., heads * size]."""
        group = self.config.heads // self.config.kv_heads
        requests, heads, tokens, size = query.shape
        grouped = query.reshape(requests, heads // group, group, tokens, size)
        scores = grouped @ key[:, :, None].transpose(-1, -2) * size**-0.5
        scores = scores.masked_fill(~visible[:, None, None], -torch.inf)
        read: Tensor = scores.softmax(-1) @ value[:, :, None]
        return read.flatten(1, 2).transpose(1, 2).flatten(-2)

    def _finish(self, hidden: Tensor, read: Tensor, layer: int) -> Tensor:
        """What attention read, through its output projection, and the MLP."""
        prefix = f"model.layers.{layer}."
        hidden = hidden + read @ self._weights[prefix + "self_attn.o_proj.weight"].T
        normed = self._norm(hidden, prefix + "post_attention_layernorm.weight")
        gate = silu(normed @ self._weights[prefix + "mlp.gate_proj.weight"].T)
        up = normed @ self._weights[prefix + "mlp.up_proj.weight"].T
        return hidden + (gate * up) @ self._weights[prefix + "mlp.down_proj.weight"].T

    def _norm(self, hidden: Tensor, name: str) -> Tensor:
        scale = torch.rsqrt(hidden.square().mean(-1, keepdim=True) + _EPSILON)
        return hidden * scale * self._weights[name]

    def _logits(self, hidden: Tensor) -> Tensor:
        normed = self._norm(hidden, "model.norm.weight")
        return normed @ self._weights["lm_head.weight"].T


def _rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding; ``heads`` [.., tokens, head_dim], ``cos`` [tokens, head_dim / 2]."""
    first, second = heads.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
