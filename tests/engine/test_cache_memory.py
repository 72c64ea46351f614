"""The cache takes memory as tokens come, not as layers and heads are many."""

from __future__ import annotations

import sys

import psutil
import pytest
import torch

from reference_engine.huge_pages import _large_regions
from reference_engine.kv_store import PagedStore
from reference_engine.model import LayerShape
from reference_engine.page_group import GroupConfig

LAYERS, KV_HEADS, HEAD_DIM, PAGE = 30, 3, 64, 16


def store(pages: int) -> PagedStore:
    layers = [LayerShape(KV_HEADS, 1, HEAD_DIM, None)] * LAYERS
    return PagedStore(layers, [GroupConfig(pages, None)], PAGE)


def put(cache: PagedStore, tokens: int) -> None:
    rows = torch.ones(KV_HEADS, tokens, HEAD_DIM)
    cache.begin_step([list(range(PAGE, PAGE + tokens))])
    for layer in range(LAYERS):
        cache.put(layer, rows, rows)


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is counted by Linux")
def test_a_hundred_tokens_take_the_memory_of_a_hundred_tokens() -> None:
    """On huge pages each of 180 ranges took two megabytes at once."""
    put(store(8), 50)  # compiles
    cache = store(8192)
    before = psutil.Process().memory_info().rss
    put(cache, 100)
    taken = psutil.Process().memory_info().rss - before
    assert taken < 4 * 100 * cache.bytes_per_token, f"{taken / 2**20:.0f} MiB"


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory map of Linux")
def test_the_cache_is_not_moved_to_huge_pages() -> None:
    """A model that is loaded later asks for huge pages, but not for this memory."""
    keys, _ = store(8192).rows(LAYERS // 2)
    address = keys.data_ptr()
    assert not any(start <= address < start + size for start, size in _large_regions())
    assert int(keys.count_nonzero()) == 0
