"""Every attention backend means the dense mask, and none lets a row depend on its company."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference_engine import cpu_kernels
from reference_engine.attention.backend import AttentionBackend, choose_backend
from reference_engine.attention.blocks import BlockAttention
from reference_engine.attention.exact import AttentionStep
from reference_engine.attention.rows import RowAttention
from reference_engine.batch import BatchBuilder, BatchSequence, RaggedBatch
from reference_engine.engine import Engine, EngineConfig
from reference_engine.model import LoadedModel
from reference_engine.request import Request, SamplingParams
from reference_engine.solo import solo
from tests.engine.test_mask import (
    HEAD_DIM,
    WINDOWS,
    _filled_store,
    _plain_attention,
    batches,
)
from tests.engine.tiny import VOCAB, drain, tiny_llama


@pytest.mark.parametrize("backend", [RowAttention(), BlockAttention()], ids=lambda b: b.name)
@settings(max_examples=25)
@given(batch=batches(), window=WINDOWS, softcap=st.sampled_from([None, 30.0]))
def test_a_backend_is_plain_masked_attention(
    backend: AttentionBackend, batch: RaggedBatch, window: int | None, softcap: float | None
) -> None:
    """Softmax(QK + mask)V in fp64, whatever the pages and chunks."""
    store, queries, keys, values = _filled_store(batch)
    scaling = HEAD_DIM**-0.5
    got = AttentionStep(batch, store, backend).attend(
        0, queries, keys, values, scaling=scaling, window=window, softcap=softcap
    )
    expected = _plain_attention(batch, store, queries, window, softcap, scaling)
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)


def blocks_model() -> LoadedModel:
    import copy

    model = LoadedModel(copy.deepcopy(tiny_llama()))
    model.attention = BlockAttention()
    return model


def test_the_engine_is_exact_on_the_blocks_backend_too() -> None:
    """Chunks and decodes over key blocks have the bits of `solo` over key blocks."""
    model = blocks_model()
    requests = [
        Request(
            f"r{i}",
            tuple(3 + (i * 31 + j * j * 7) % (VOCAB - 3) for j in range(length)),
            SamplingParams(max_tokens=6, logprobs=2),
        )
        for i, length in enumerate((1, 15, 63, 64, 65, 130))
    ]
    config = EngineConfig(page_size=8, num_pages=24, token_budget=48, poison_freed_pages=True)
    answers = drain(Engine(model, config), requests)
    for request in requests:
        [expected] = solo(model, request)
        assert answers[request.request_id, 0] == expected


def test_cpu_and_fp32_get_the_compiled_loops_and_everything_else_plain_torch() -> None:
    assert choose_backend(torch.device("cpu"), torch.float32).name == "rows"
    assert choose_backend(torch.device("cpu"), torch.bfloat16).name == "blocks"


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("rows", [1, 2, 3, 9, 64])
def test_threads_share_out_rows_and_change_no_bit(threads: int, rows: int) -> None:
    batch = BatchBuilder(16).build(
        [BatchSequence(tuple(range(rows)), 40, [[3, 1, 2, 5, 4, 6, 7]], 1)]
    )
    store, queries, keys, values = _filled_store(batch)
    arguments: dict[str, Any] = {"scaling": 0.25, "window": None, "softcap": None}
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = AttentionStep(batch, store, RowAttention()).attend(
            0, queries, keys, values, **arguments
        )
        torch.set_num_threads(threads)
        many = AttentionStep(batch, store, RowAttention()).attend(
            0, queries, keys, values, **arguments
        )
    finally:
        torch.set_num_threads(before)
    assert torch.equal(one, many)


def test_a_stale_key_shouts() -> None:
    """A NaN among the visible keys or values reaches the output; a hidden one does not."""
    generator = np.random.default_rng(0)
    keys, values = generator.standard_normal((2, 1, 40, 32), dtype=np.float32)
    query = generator.standard_normal((1, 1, 32), dtype=np.float32)
    slots, begin, end = np.arange(40), np.array([0]), np.array([33])
    for broken in (keys, values):
        for slot, seen in ((0, True), (31, True), (32, True), (33, False)):
            healthy = broken[0, slot, 5]
            broken[0, slot, 5] = np.nan
            out = np.zeros_like(query)
            cpu_kernels.attend_rows(out, query, keys, values, slots, begin, end, 0.0)
            assert bool(np.isnan(out).any()) is seen, f"slot {slot}"
            broken[0, slot, 5] = healthy


@pytest.mark.parametrize("width", [1, 31, 576, 1536])
def test_rms_norm_rows_agree_with_fp64(width: int) -> None:
    generator = np.random.default_rng(width)
    x = generator.standard_normal((9, width), dtype=np.float32)
    scale = generator.standard_normal(width, dtype=np.float32)
    out, alone = np.empty_like(x), np.empty((1, width), np.float32)
    cpu_kernels.rms_norm_rows(out, x, scale, 1e-5)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    for row in range(9):
        cpu_kernels.rms_norm_rows(alone, x[row : row + 1], scale, 1e-5)
        assert np.array_equal(alone[0], out[row])


def test_finite_rows_finds_the_bad_ones() -> None:
    rows = np.zeros((5, 70), np.float32)
    rows[1, 69], rows[2, 0], rows[3, 31] = np.nan, np.inf, -np.inf
    rows[4, 3] = np.finfo(np.float32).max
    assert cpu_kernels.finite_rows(rows).tolist() == [True, False, False, False, True]
