"""The dense mask means what the specification says, and attention means the dense mask."""

from __future__ import annotations

import random

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from reference_engine.attention.exact import AttentionStep
from reference_engine.batch import BatchBuilder, BatchSequence, RaggedBatch
from reference_engine.kv_store import PagedStore
from reference_engine.mask import dense_mask
from reference_engine.model import LayerShape
from reference_engine.page_group import GroupConfig

KV_HEADS, GROUP, HEAD_DIM = 2, 3, 16


@st.composite
def batches(draw: st.DrawFn) -> RaggedBatch:
    """Chunks and decodes at edge lengths, on shuffled pages that belong to one sequence each."""
    page_size = draw(st.sampled_from([1, 8, 16, 64, 256]))
    lengths = st.sampled_from([1, 2, 7, 8, 9, 63, 64, 65, 130])
    chunks = draw(
        st.lists(
            st.tuples(st.sampled_from([0, 1, 15, 16, 63, 64, 65, 200]), lengths | st.just(1)),
            min_size=1,
            max_size=5,
        )
    )
    needed = [-(-(start + count) // page_size) for start, count in chunks]
    pages = list(range(1, sum(needed) + 1))
    random.Random(draw(st.integers(0, 99))).shuffle(pages)
    sequences = []
    for (start, count), pages_needed in zip(chunks, needed, strict=True):
        table = [pages.pop() for _ in range(pages_needed)]
        sequences.append(BatchSequence(tuple(range(count)), start, [table], 1))
    return BatchBuilder(page_size).build(sequences)


WINDOWS = st.sampled_from([None, 1, 2, 16, 63, 64, 65])


@given(batches(), WINDOWS)
def test_mask_is_the_specification(batch: RaggedBatch, window: int | None) -> None:
    """A row sees exactly its own request's positions that are not later and in the window."""
    mask = dense_mask(batch, window)
    expected = []
    for index, sequence in enumerate(batch.sequences):
        for position in range(sequence.start, sequence.start + sequence.count):
            lowest = 0 if window is None else position - window + 1
            expected += [
                other == index and lowest <= key <= position
                for other, neighbour in enumerate(batch.sequences)
                for key in range(neighbour.start + neighbour.count)
            ]
    assert mask.visible.flatten().tolist() == expected


@settings(max_examples=40)
@given(batches(), WINDOWS, st.sampled_from([None, 30.0]))
def test_attention_is_plain_masked_attention(
    batch: RaggedBatch, window: int | None, softcap: float | None
) -> None:
    """The paged, tiled computation agrees with softmax(QK + mask)V in fp64."""
    store, queries, keys, values = _filled_store(batch)
    scaling = HEAD_DIM**-0.5
    got = AttentionStep(batch, store).attend(
        0, queries, keys, values, scaling=scaling, window=window, softcap=softcap
    )
    expected = _plain_attention(batch, store, queries, window, softcap, scaling)
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)


def _filled_store(batch: RaggedBatch) -> tuple[PagedStore, Tensor, Tensor, Tensor]:
    """A store that knows the sequences' earlier tokens, and this step's queries, keys, values."""
    torch.manual_seed(len(batch.token_ids))
    pages = 1 + max(max(s.block_tables[0]) for s in batch.sequences)
    layer = LayerShape(KV_HEADS, GROUP, HEAD_DIM, None)
    store = PagedStore([layer], [GroupConfig(pages)], batch.page_size)
    earlier = [int(s) for s in dense_mask(batch).key_slots if int(s) not in set(batch.slots[0])]
    if earlier:
        store.begin_step([earlier])
        store.put(0, *torch.randn(2, KV_HEADS, len(earlier), HEAD_DIM).unbind())
    store.begin_step(batch.slots)
    rows = batch.num_tokens
    queries = torch.randn(KV_HEADS * GROUP, rows, HEAD_DIM)
    keys, values = torch.randn(2, KV_HEADS, rows, HEAD_DIM).unbind()
    return store, queries, keys, values


def _plain_attention(
    batch: RaggedBatch,
    store: PagedStore,
    queries: Tensor,
    window: int | None,
    softcap: float | None,
    scaling: float,
) -> Tensor:
    mask = dense_mask(batch, window)
    pages = 1 + max(max(s.block_tables[0]) for s in batch.sequences)
    units = torch.arange(pages * batch.page_size // store.unit)
    keys, values = (x[:, mask.key_slots].double() for x in store.gather(0, units))
    grouped = queries.double().view(KV_HEADS, GROUP, -1, HEAD_DIM)
    scores = torch.einsum("hgqd,hkd->hgqk", grouped, keys) * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    weights = scores.masked_fill(~mask.visible, float("-inf")).softmax(-1)
    out = torch.einsum("hgqk,hkd->qhgd", weights, values)
    return out.reshape(batch.num_tokens, KV_HEADS * GROUP, HEAD_DIM)
