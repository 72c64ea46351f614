"""The calls of flash-attn: every length, block table and option, checked without a GPU."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference_engine.attention.exact import AttentionStep
from reference_engine.attention.flash import Flash2Kernel, Flash3Kernel, FlashAttention
from reference_engine.batch import BatchBuilder, BatchSequence, RaggedBatch
from reference_engine.engine import Engine, EngineConfig
from reference_engine.model import LoadedModel
from reference_engine.request import Request, SamplingParams
from reference_engine.solo import solo
from tests.engine.test_mask import HEAD_DIM, WINDOWS, _filled_store, _plain_attention, batches
from tests.engine.tiny import VOCAB, drain, tiny_llama, tiny_model
from tests.gpu.plain_flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache

BACKENDS = {
    "2": FlashAttention(Flash2Kernel(flash_attn_varlen_func)),
    "3": FlashAttention(Flash3Kernel(flash_attn_with_kvcache)),
}


@pytest.mark.parametrize("version", ["2", "3"])
@settings(max_examples=25)
@given(batch=batches(), window=WINDOWS, softcap=st.sampled_from([None, 30.0]))
def test_what_flash_attn_is_told_is_the_dense_mask(
    version: str, batch: RaggedBatch, window: int | None, softcap: float | None
) -> None:
    """Ragged chunks and decodes on shuffled pages, windows and soft-capping."""
    if version == "2" and batch.page_size % 256:
        batch = _on_large_pages(batch)
    store, queries, keys, values = _filled_store(batch)
    got = AttentionStep(batch, store, BACKENDS[version]).attend(
        0, queries, keys, values, scaling=HEAD_DIM**-0.5, window=window, softcap=softcap
    )
    expected = _plain_attention(batch, store, queries, window, softcap, HEAD_DIM**-0.5)
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)


def _on_large_pages(batch: RaggedBatch) -> RaggedBatch:
    """The same lengths on pages of 256 tokens, last page first."""
    pages = sum(-(-s.context // 256) for s in batch.sequences)
    sequences = []
    for sequence in batch.sequences:
        count = -(-sequence.context // 256)
        table = [list(range(pages, pages - count, -1))]
        pages -= count
        sequences.append(BatchSequence(sequence.token_ids, sequence.start, table, 1))
    return BatchBuilder(256).build(sequences)


def test_flash_attn_2_refuses_small_pages() -> None:
    batch = BatchBuilder(16).build([BatchSequence((1, 2), 0, [[1]], 1)])
    store, queries, keys, values = _filled_store(batch)
    with pytest.raises(ValueError, match="multiple of 256, not 16"):
        AttentionStep(batch, store, BACKENDS["2"]).attend(
            0, queries, keys, values, scaling=1.0, window=None, softcap=None
        )


@pytest.mark.parametrize("version", ["2", "3"])
def test_the_engine_runs_on_flash_attention(version: str) -> None:
    """Whole answers through the engine: the ids of `solo` on the CPU's own backend."""
    model = LoadedModel(copy.deepcopy(tiny_llama()))
    model.attention = BACKENDS[version]
    requests = [
        Request(
            f"r{i}",
            tuple(3 + (i * 31 + j * j * 7) % (VOCAB - 3) for j in range(length)),
            SamplingParams(max_tokens=5),
        )
        for i, length in enumerate((1, 15, 65, 130))
    ]
    config = EngineConfig(page_size=256, num_pages=9, token_budget=48)
    answers = drain(Engine(model, config), requests)
    for request in requests:
        [expected] = solo(tiny_model(), request)
        assert answers[request.request_id, 0].token_ids == expected.token_ids
