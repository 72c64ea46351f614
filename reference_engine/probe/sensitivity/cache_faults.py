"""What can be done to a cache to break it.

A fault is applied once, between the prompt and the first generated token; structural faults (a
wrong position, head or layer) stay for the rest of the answer. Each request of a batch gets its own
random place. What is put in comes from another request of the batch, one of the same length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import torch
from torch import Tensor

from reference_engine.probe.sensitivity.cache_model import OpenCache

PAGE_TOKENS: Final = 16

Apply = Callable[[OpenCache, "Places"], None]


class Scope(StrEnum):
    """Whether one layer is hit, another one for each request, or all of them."""

    ONE_LAYER = "one layer"
    ALL_LAYERS = "all layers"


@dataclass(slots=True)
class Places:
    """Where a fault hits: ``rows`` [n], ``slot`` and ``other`` [n], and each request's layers."""

    rows: Tensor
    slot: Tensor
    other: Tensor
    layers: list[list[int]]
    generator: torch.Generator

    def rows_of(self, layer: int) -> Tensor:
        """The requests in which this layer is hit."""
        return torch.tensor([row for row, hit in enumerate(self.layers) if layer in hit])


@dataclass(frozen=True, slots=True)
class CacheFault:
    """One kind: its name, what goes wrong in words, its scope and how it is done.

    ``full_layers_only``: a layer with a window does not see the entry, so nothing is wrong there.
    """

    name: str
    sentence: str
    scope: Scope
    apply: Apply
    sees_ahead: int = 0
    full_layers_only: bool = False


def _each_layer(cache: OpenCache, places: Places) -> list[tuple[int, Tensor]]:
    hit = [(layer, places.rows_of(layer)) for layer in range(len(cache.keys))]
    return [(layer, rows) for layer, rows in hit if len(rows)]


def entry_zeroed(cache: OpenCache, places: Places) -> None:
    """Zero the key and value of one entry."""
    for layer, rows in _each_layer(cache, places):
        cache.keys[layer][rows, :, places.slot[rows]] = 0
        cache.values[layer][rows, :, places.slot[rows]] = 0


def replace(*, key: bool, value: bool) -> Apply:
    """Give one entry the key, the value or both of another entry of the request."""

    def apply(cache: OpenCache, places: Places) -> None:
        for layer, rows in _each_layer(cache, places):
            slot, other = places.slot[rows], places.other[rows]
            for wanted, store in ((key, cache.keys[layer]), (value, cache.values[layer])):
                if wanted:
                    store[rows, :, slot] = store[rows, :, other]

    return apply


def entry_of_other_request(cache: OpenCache, places: Places) -> None:
    """Give one entry what another request has at the same position."""
    _copy_span(cache, places, places.slot, 1)


def _copy_span(cache: OpenCache, places: Places, start: Tensor, count: int) -> None:
    """Slots of the next request of the batch, at the same positions."""
    for layer, rows in _each_layer(cache, places):
        donors = (rows + 1) % cache.keys[layer].shape[0]
        for store in (cache.keys[layer], cache.values[layer]):
            before = store.clone()
            for row, donor in zip(rows.tolist(), donors.tolist(), strict=True):
                span = slice(int(start[row]), int(start[row]) + count)
                store[row, :, span] = before[donor, :, span]


def _page_starts(cache: OpenCache, places: Places) -> Tensor:
    """The first slot of the page that ``slot`` is in, or of the last with a neighbour after it."""
    last = max(cache.position // PAGE_TOKENS - 2, 0)
    return (places.slot // PAGE_TOKENS).clamp(max=last) * PAGE_TOKENS


def block_of_other_request(cache: OpenCache, places: Places) -> None:
    """Give one page what another request has at the same positions."""
    _copy_span(cache, places, _page_starts(cache, places), PAGE_TOKENS)


def block_replaced_by_neighbour(cache: OpenCache, places: Places) -> None:
    """Put the entries of the following page into one page, too."""
    starts = _page_starts(cache, places)
    for layer, rows in _each_layer(cache, places):
        for store in (cache.keys[layer], cache.values[layer]):
            for row in rows.tolist():
                at = int(starts[row])
                after = slice(at + PAGE_TOKENS, at + 2 * PAGE_TOKENS)
                store[row, :, at : at + PAGE_TOKENS] = store[row, :, after].clone()


def block_swapped(*, keys: bool) -> Apply:
    """Let two neighbouring pages change places: their values, and with ``keys`` their keys."""

    def apply(cache: OpenCache, places: Places) -> None:
        starts = _page_starts(cache, places)
        for layer, rows in _each_layer(cache, places):
            stores = [cache.values[layer], cache.keys[layer]] if keys else [cache.values[layer]]
            for store in stores:
                for row in rows.tolist():
                    at = int(starts[row])
                    span = store[row, :, at : at + 2 * PAGE_TOKENS].clone()
                    store[row, :, at : at + 2 * PAGE_TOKENS] = span.roll(PAGE_TOKENS, dims=1)

    return apply


def hide(slot_of: Callable[[OpenCache], int]) -> Apply:
    """Mask one slot, the same in every request."""

    def apply(cache: OpenCache, places: Places) -> None:
        for layer, rows in _each_layer(cache, places):
            cache.visible[layer][rows, slot_of(cache)] = False

    return apply


def extra_slot(content: Callable[[Tensor, Places, Tensor], Tensor]) -> Apply:
    """One slot more in every layer, visible where the layer is hit."""

    def apply(cache: OpenCache, places: Places) -> None:
        for layer, rows in _each_layer(cache, places):
            for store in (cache.keys[layer], cache.values[layer]):
                store[rows, :, cache.used] = content(store, places, rows)
            cache.visible[layer][rows, cache.used] = True
        cache.slot_positions[cache.used] = cache.position - 1
        cache.used += 1

    return apply


def zeros(store: Tensor, places: Places, rows: Tensor) -> Tensor:
    """What a padding slot holds."""
    return torch.zeros_like(store[rows, :, 0])


def nan(store: Tensor, places: Places, rows: Tensor) -> Tensor:
    """What poisoned memory holds."""
    return torch.full_like(store[rows, :, 0], torch.nan)


def random_bytes(store: Tensor, places: Places, rows: Tensor) -> Tensor:
    """What memory holds that nobody wrote: random bits, read as bfloat16."""
    shape = store[rows, :, 0].shape
    bits = torch.randint(-(2**15), 2**15, shape, generator=places.generator, dtype=torch.int16)
    return bits.view(torch.bfloat16).to(store.dtype)


def foreign(store: Tensor, places: Places, rows: Tensor) -> Tensor:
    """Another request's entry of a random position."""
    return store[(rows + 1) % store.shape[0], :, places.slot[rows]]


def own_again(store: Tensor, places: Places, rows: Tensor) -> Tensor:
    """An entry of the request itself."""
    return store[rows, :, places.slot[rows]]


def token_doubled(cache: OpenCache, places: Places) -> None:
    """The last prompt token entered twice: its entry again, and every later position one more."""
    last = cache.position - 1
    extra_slot(lambda store, _places, rows: store[rows, :, last])(cache, places)
    cache.position_shift = 1


def shift(by: int) -> Apply:
    """Give every new token a position that is ``by`` too high."""

    def apply(cache: OpenCache, places: Places) -> None:
        cache.position_shift = by

    return apply


def wrong_heads(cache: OpenCache, places: Places) -> None:
    """Query head h reads KV head ``h % kv_heads`` instead of ``h // group``."""
    cache.heads_in_turn = True


def wrong_layer(cache: OpenCache, places: Places) -> None:
    """One layer, the same for the whole batch, reads the cache of the layer before or after."""
    layers = len(cache.keys)
    layer = int(torch.randint(layers, (1,), generator=places.generator))
    cache.read_layer = {layer: layer - 1 if layer else 1}


def window_off(by: int) -> Apply:
    """Let every layer that has a window see ``by`` tokens more."""

    def apply(cache: OpenCache, places: Places) -> None:
        cache.window_error = by

    return apply


def blind_to_itself(cache: OpenCache, places: Places) -> None:
    """Mask every new token's own slot while it is computed."""
    cache.sees_itself = False


def nothing(cache: OpenCache, places: Places) -> None:
    """For faults of the prompt's own mask, and for the healthy control."""
