"""The kinds of cache fault that are measured, each as real engines have had it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reference_engine.probe.config import ProbeConfig
from reference_engine.probe.sensitivity import cache_faults as do
from reference_engine.probe.sensitivity.cache_faults import PAGE_TOKENS, CacheFault, Scope

_ONE: Final = Scope.ONE_LAYER
_EVERY: Final = Scope.ALL_LAYERS

_KINDS: Final = (
    CacheFault("entry-zeroed", "one entry's K and V are zero", _ONE, do.entry_zeroed),
    CacheFault(
        "entry-replaced",
        "one entry's K and V are those of another token of the request",
        _ONE,
        do.replace(key=True, value=True),
    ),
    CacheFault(
        "key-replaced",
        "one entry's K is another token's",
        _ONE,
        do.replace(key=True, value=False),
    ),
    CacheFault(
        "value-replaced",
        "one entry's V is another token's",
        _ONE,
        do.replace(key=False, value=True),
    ),
    CacheFault(
        "entry-stale",
        "one entry is another request's of the same position",
        _ONE,
        do.entry_of_other_request,
    ),
    CacheFault(
        "entry-stale-all",
        "one entry is another request's of the same position",
        _EVERY,
        do.entry_of_other_request,
    ),
    CacheFault(
        "block-foreign",
        "one page is another request's",
        _EVERY,
        do.block_of_other_request,
    ),
    CacheFault(
        "block-foreign-one",
        "one page is another request's",
        _ONE,
        do.block_of_other_request,
    ),
    CacheFault(
        "block-repeated",
        "one page holds its neighbour's entries",
        _EVERY,
        do.block_replaced_by_neighbour,
    ),
    CacheFault(
        "block-repeated-one",
        "one page holds its neighbour's entries",
        _ONE,
        do.block_replaced_by_neighbour,
    ),
    CacheFault(
        "values-swapped",
        "the values of two neighbouring pages changed places",
        _EVERY,
        do.block_swapped(keys=False),
    ),
    CacheFault(
        "foreign-visible", "another request's token is visible", _EVERY, do.extra_slot(do.foreign)
    ),
    CacheFault(
        "foreign-visible-one", "another request's token is visible", _ONE, do.extra_slot(do.foreign)
    ),
    CacheFault("entry-twice", "one entry is read twice", _EVERY, do.extra_slot(do.own_again)),
    CacheFault("entry-twice-one", "one entry is read twice", _ONE, do.extra_slot(do.own_again)),
    CacheFault(
        "token-doubled", "the last prompt token was entered twice", _EVERY, do.token_doubled
    ),
    CacheFault(
        "last-dropped",
        "the last prompt entry is missing",
        _EVERY,
        do.hide(lambda c: c.position - 1),
    ),
    CacheFault(
        "last-dropped-one",
        "the last prompt entry is missing",
        _ONE,
        do.hide(lambda c: c.position - 1),
    ),
    CacheFault(
        "first-dropped",
        "the first entry is missing",
        _EVERY,
        do.hide(lambda c: 0),
        full_layers_only=True,
    ),
    CacheFault(
        "first-dropped-one",
        "the first entry is missing",
        _ONE,
        do.hide(lambda c: 0),
        full_layers_only=True,
    ),
    CacheFault("position+1", "new tokens' positions are 1 too high", _EVERY, do.shift(1)),
    CacheFault("position-1", "new tokens' positions are 1 too low", _EVERY, do.shift(-1)),
    CacheFault("position+page", "positions are a page too high", _EVERY, do.shift(PAGE_TOKENS)),
    CacheFault("position-page", "positions are a page too low", _EVERY, do.shift(-PAGE_TOKENS)),
    CacheFault("zero-visible", "a slot of zeros is visible", _EVERY, do.extra_slot(do.zeros)),
    CacheFault("zero-visible-one", "a slot of zeros is visible", _ONE, do.extra_slot(do.zeros)),
    CacheFault("nan-visible", "a slot of NaN is visible", _ONE, do.extra_slot(do.nan)),
    CacheFault(
        "garbage-visible", "a slot nobody wrote is visible", _ONE, do.extra_slot(do.random_bytes)
    ),
    CacheFault("wrong-kv-head", "query heads read the wrong KV head", _EVERY, do.wrong_heads),
    CacheFault("wrong-layer", "a layer reads its neighbour's cache", _ONE, do.wrong_layer),
    CacheFault("itself-hidden", "a new token does not see itself", _EVERY, do.blind_to_itself),
    CacheFault("mask-ahead", "the prompt's mask shows one token too many", _EVERY, do.nothing, 1),
)

_WINDOW_KINDS: Final = (
    CacheFault("window+1", "windows are one token too large", _EVERY, do.window_off(1)),
    CacheFault("window-1", "windows are one token too small", _EVERY, do.window_off(-1)),
)

CACHE_FAULTS: Final[Mapping[str, CacheFault]] = {fault.name: fault for fault in _KINDS}

# What changes nothing that attention can see, measured as a control: stored keys carry their
# position, so two whole pages may change places.
CONTROLS: Final[Mapping[str, CacheFault]] = {
    fault.name: fault
    for fault in (
        CacheFault("healthy", "nothing is wrong", _EVERY, do.nothing),
        CacheFault(
            "pages-swapped",
            "two pages changed places, keys and values together",
            _EVERY,
            do.block_swapped(keys=True),
        ),
    )
}


def kinds_for(config: ProbeConfig) -> Mapping[str, CacheFault]:
    """The kinds that ``config`` can suffer.

    Those of windows only where it has windows; and where every layer has one, the first token is
    soon out of sight, so nothing is wrong when it is dropped.
    """
    if not config.windows:
        return CACHE_FAULTS
    kinds = {**CACHE_FAULTS, **{fault.name: fault for fault in _WINDOW_KINDS}}
    if None in config.windows:
        return kinds
    return {name: fault for name, fault in kinds.items() if not name.startswith("first-")}
