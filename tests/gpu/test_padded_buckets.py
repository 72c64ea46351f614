"""Decodes padded to graph sizes, run without capture: no bit moves and nothing real is written."""

from __future__ import annotations

import pytest
import torch

from reference_engine.engine import Engine, EngineConfig
from reference_engine.kv_store import PagedStore
from reference_engine.padded_buckets import bucket_sizes
from reference_engine.request import Request, SamplingParams, TokenEvent
from tests.engine.tiny import VOCAB, collect, tiny_model


def test_bucket_sizes_reach_the_largest_batch() -> None:
    assert bucket_sizes(1) == (1,)
    assert bucket_sizes(3) == (1, 2, 3)
    assert bucket_sizes(8) == (1, 2, 4, 8)
    assert bucket_sizes(9) == (1, 2, 4, 8, 16)
    assert bucket_sizes(20) == (1, 2, 4, 8, 16, 24)


def run(count: int, *, pad_decodes: bool) -> Engine:
    config = EngineConfig(
        page_size=8, num_pages=200, token_budget=64, max_num_seqs=24, pad_decodes=pad_decodes
    )
    engine = Engine(tiny_model(), config)
    for i in range(count):
        length = 1 + (7 * i) % 23
        ids = tuple(3 + (i * 31 + j * j * 7) % (VOCAB - 3) for j in range(length))
        params = SamplingParams(max_tokens=3 + i % 4, logprobs=2, ignore_eos=True)
        engine.submit(Request(f"r{i}", ids, params))
    return engine


def _rows(engine: Engine, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    store = engine.parts["store"]
    assert isinstance(store, PagedStore)
    return store.rows(layer)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 24])
def test_padding_moves_no_bit(count: int) -> None:
    """Ids and logprobs at every bucket size and one beside it; every real page as it would be."""
    plain, padded = run(count, pad_decodes=False), run(count, pad_decodes=True)
    events: list[list[TokenEvent]] = [[], []]
    while plain.has_work or padded.has_work:
        for engine, seen in zip((plain, padded), events, strict=True):
            seen += engine.step()
    assert collect(events[0]) == collect(events[1])
    spent = padded.stats().padding_tokens_spent_total
    assert spent > 0 or count in (1, 2)
    assert plain.stats().padding_tokens_spent_total == 0
    trash = 200 * 8
    for layer in range(2):
        for before, after in zip(_rows(plain, layer), _rows(padded, layer), strict=True):
            assert torch.equal(before[:, :trash], after[:, :trash]), "padding wrote to a real page"
            assert not bool(before[:, trash:].any())
            assert bool(after[:, trash].any()) == (spent > 0), "padding did not go to the trash"
