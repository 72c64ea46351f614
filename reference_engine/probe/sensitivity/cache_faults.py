"""The ways in which the sensitivity measurement breaks a cache, each as real engines have done it.

A fault is applied once, between the prompt and the first generated token; structural faults (a
wrong position, head or layer) stay for the rest of the answer. Each request of a batch gets its own
random place. What is put in comes from another request of the batch, one of the same length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    """One kind: its name, what goes wrong in words, its scope and how it is done."""

    name: str
    sentence: str
    scope: Scope
    apply: Apply
    sees_ahead: int = 0


def _each_layer(cache: OpenCache, places: Places) -> list[tuple[int, Tensor]]:
    hit = [(layer, places.rows_of(layer)) for layer in range(len(cache.keys))]
    return [(layer, rows) for layer, rows in hit if len(rows)]


def _entry_zeroed(cache: OpenCache, places: Places) -> None:
    for layer, rows in _each_layer(cache, places):
        cache.keys[layer][rows, :, places.slot[rows]] = 0
        cache.values[layer][rows, :, places.slot[rows]] = 0


def _replace(*, key: bool, value: bool) -> Apply:
    def apply(cache: OpenCache, places: Places) -> None:
        for layer, rows in _each_layer(cache, places):
            slot, other = places.slot[rows], places.other[rows]
            for wanted, store in ((key, cache.keys[layer]), (value, cache.values[layer])):
                if wanted:
                    store[rows, :, slot] = store[rows, :, other]

    return apply


def _entry_of_other_request(cache: OpenCache, places: Places) -> None:
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
    """The first slot of a whole page that has a whole neighbour after it."""
    pages = max(cache.position // PAGE_TOKENS - 1, 1)
    return places.slot % pages * PAGE_TOKENS


def _block_of_other_request(cache: OpenCache, places: Places) -> None:
    _copy_span(cache, places, _page_starts(cache, places), PAGE_TOKENS)


def _block_replaced_by_neighbour(cache: OpenCache, places: Places) -> None:
    starts = _page_starts(cache, places)
    for layer, rows in _each_layer(cache, places):
        for store in (cache.keys[layer], cache.values[layer]):
            for row in rows.tolist():
                at = int(starts[row])
                after = slice(at + PAGE_TOKENS, at + 2 * PAGE_TOKENS)
                store[row, :, at : at + PAGE_TOKENS] = store[row, :, after].clone()


def _block_swapped(*, keys: bool) -> Apply:
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


def _hide(slot_of: Callable[[OpenCache], int]) -> Apply:
    def apply(cache: OpenCache, places: Places) -> None:
        for layer, rows in _each_layer(cache, places):
            cache.visible[layer][rows, slot_of(cache)] = False

    return apply


def _extra_slot(content: Callable[[Tensor, Places, Tensor], Tensor]) -> Apply:
    """One slot more in every layer, visible where the layer is hit."""

    def apply(cache: OpenCache, places: Places) -> None:
        for layer, rows in _each_layer(cache, places):
            for store in (cache.keys[layer], cache.values[layer]):
                store[rows, :, cache.used] = content(store, places, rows)
            cache.visible[layer][rows, cache.used] = True
        cache.used += 1

    return apply


def _zeros(store: Tensor, places: Places, rows: Tensor) -> Tensor:
    return torch.zeros_like(store[rows, :, 0])


def _nan(store: Tensor, places: Places, rows: Tensor) -> Tensor:
    return torch.full_like(store[rows, :, 0], torch.nan)


def _random_bytes(store: Tensor, places: Places, rows: Tensor) -> Tensor:
    """What memory holds that nobody wrote: random bits, read as bfloat16."""
    shape = store[rows, :, 0].shape
    bits = torch.randint(-(2**15), 2**15, shape, generator=places.generator, dtype=torch.int16)
    return bits.view(torch.bfloat16).to(store.dtype)


def _foreign(store: Tensor, places: Places, rows: Tensor) -> Tensor:
    return store[(rows + 1) % store.shape[0], :, places.slot[rows]]


def _own_again(store: Tensor, places: Places, rows: Tensor) -> Tensor:
    return store[rows, :, places.slot[rows]]


def _token_doubled(cache: OpenCache, places: Places) -> None:
    """The last prompt token entered twice: its entry again, and every later position one more."""
    last = cache.position - 1
    _extra_slot(lambda store, _places, rows: store[rows, :, last])(cache, places)
    cache.position_shift = 1


def _shift(by: int) -> Apply:
    def apply(cache: OpenCache, places: Places) -> None:
        cache.position_shift = by

    return apply


def _wrong_heads(cache: OpenCache, places: Places) -> None:
    """Query head h reads KV head ``h % kv_heads`` instead of ``h // group``."""
    cache.heads_in_turn = True


def _wrong_layer(cache: OpenCache, places: Places) -> None:
    """One layer, the same for the whole batch, reads the cache of the layer before or after."""
    layers = len(cache.keys)
    layer = int(torch.randint(layers, (1,), generator=places.generator))
    cache.read_layer = {layer: layer - 1 if layer else 1}


def _blind_to_itself(cache: OpenCache, places: Places) -> None:
    cache.sees_itself = False


def _nothing(cache: OpenCache, places: Places) -> None:
    """For faults of the prompt's own mask, and for the healthy control."""


def _kinds() -> list[CacheFault]:
    one, every = Scope.ONE_LAYER, Scope.ALL_LAYERS
    return [
        CacheFault("entry-zeroed", "one entry's K and V are zero", one, _entry_zeroed),
        CacheFault(
            "entry-replaced",
            "one entry's K and V are those of another token of the request",
            one,
            _replace(key=True, value=True),
        ),
        CacheFault(
            "key-replaced",
            "one entry's K is another token's",
            one,
            _replace(key=True, value=False),
        ),
        CacheFault(
            "value-replaced",
            "one entry's V is another token's",
            one,
            _replace(key=False, value=True),
        ),
        CacheFault(
            "entry-stale",
            "one entry is another request's of the same position",
            one,
            _entry_of_other_request,
        ),
        CacheFault(
            "entry-stale-all",
            "one entry is another request's of the same position",
            every,
            _entry_of_other_request,
        ),
        CacheFault(
            "block-foreign",
            "one page is another request's",
            every,
            _block_of_other_request,
        ),
        CacheFault(
            "block-foreign-one",
            "one page is another request's",
            one,
            _block_of_other_request,
        ),
        CacheFault(
            "block-repeated",
            "one page holds its neighbour's entries",
            every,
            _block_replaced_by_neighbour,
        ),
        CacheFault(
            "block-repeated-one",
            "one page holds its neighbour's entries",
            one,
            _block_replaced_by_neighbour,
        ),
        CacheFault(
            "values-swapped",
            "the values of two neighbouring pages changed places",
            every,
            _block_swapped(keys=False),
        ),
        CacheFault(
            "foreign-visible", "another request's token is visible", every, _extra_slot(_foreign)
        ),
        CacheFault(
            "foreign-visible-one", "another request's token is visible", one, _extra_slot(_foreign)
        ),
        CacheFault("entry-twice", "one entry is read twice", every, _extra_slot(_own_again)),
        CacheFault("entry-twice-one", "one entry is read twice", one, _extra_slot(_own_again)),
        CacheFault(
            "token-doubled", "the last prompt token was entered twice", every, _token_doubled
        ),
        CacheFault(
            "last-dropped",
            "the last prompt entry is missing",
            every,
            _hide(lambda c: c.position - 1),
        ),
        CacheFault(
            "last-dropped-one",
            "the last prompt entry is missing",
            one,
            _hide(lambda c: c.position - 1),
        ),
        CacheFault("first-dropped", "the first entry is missing", every, _hide(lambda c: 0)),
        CacheFault("first-dropped-one", "the first entry is missing", one, _hide(lambda c: 0)),
        CacheFault("position+1", "new tokens' positions are 1 too high", every, _shift(1)),
        CacheFault("position-1", "new tokens' positions are 1 too low", every, _shift(-1)),
        CacheFault("position+page", "positions are a page too high", every, _shift(PAGE_TOKENS)),
        CacheFault("position-page", "positions are a page too low", every, _shift(-PAGE_TOKENS)),
        CacheFault("zero-visible", "a slot of zeros is visible", every, _extra_slot(_zeros)),
        CacheFault("zero-visible-one", "a slot of zeros is visible", one, _extra_slot(_zeros)),
        CacheFault("nan-visible", "a slot of NaN is visible", one, _extra_slot(_nan)),
        CacheFault(
            "garbage-visible", "a slot nobody wrote is visible", one, _extra_slot(_random_bytes)
        ),
        CacheFault("wrong-kv-head", "query heads read the wrong KV head", every, _wrong_heads),
        CacheFault("wrong-layer", "a layer reads its neighbour's cache", one, _wrong_layer),
        CacheFault("itself-hidden", "a new token does not see itself", every, _blind_to_itself),
        CacheFault("mask-ahead", "the prompt's mask shows one token too many", every, _nothing, 1),
    ]


CACHE_FAULTS: Final[Mapping[str, CacheFault]] = {fault.name: fault for fault in _kinds()}

# What changes nothing that attention can see, measured as a control: stored keys carry their
# position, so two whole pages may change places.
CONTROLS: Final[Mapping[str, CacheFault]] = {
    fault.name: fault
    for fault in (
        CacheFault("healthy", "nothing is wrong", Scope.ALL_LAYERS, _nothing),
        CacheFault(
            "pages-swapped",
            "two pages changed places, keys and values together",
            Scope.ALL_LAYERS,
            _block_swapped(keys=True),
        ),
    )
}
