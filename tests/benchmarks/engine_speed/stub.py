"""A model that computes nothing: what is left is scheduling, batch assembly and bookkeeping."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reference_engine.attention.blocks import BlockAttention
from reference_engine.attention.exact import AttentionStep
from reference_engine.batch import RaggedBatch
from reference_engine.engine import Engine, EngineConfig
from reference_engine.model import LayerShape
from reference_engine.request import Request, SamplingParams
from reference_engine.step import ChunkKind

PROMPT_TOKENS = 100


class StubModel:
    """Answers token 5 to everything."""

    def __init__(self) -> None:
        self.vocab_size = 32
        self.max_context_tokens = 1 << 20
        self.eos_ids: frozenset[int] = frozenset()
        self.bos_id = None
        self.dtype = torch.float32
        self.device = torch.device("cpu")
        self.layers = (LayerShape(kv_heads=1, group=1, head_dim=8, window=None),)
        self.attention = BlockAttention()
        self._row = torch.zeros(1, self.vocab_size)
        self._row[0, 5] = 1.0

    def logits(self, batch: RaggedBatch, step: AttentionStep) -> Tensor:
        """[rows that want logits, vocab]."""
        return self._row.expand(len(batch.logit_rows), -1).contiguous()


def decoding_engine(*, running: int, waiting: int) -> Engine:
    """An engine whose every step decodes ``running`` sequences while others wait."""
    pages = running * (-(-(PROMPT_TOKENS + 4096) // 16)) + 1
    config = EngineConfig(
        num_pages=pages,
        token_budget=26 * running + 2048,
        max_num_seqs=running,
        prefix_caching=False,
    )
    model: Any = StubModel()
    engine = Engine(model, config)
    for index in range(running + waiting):
        prompt = tuple(3 + (index + i) % 29 for i in range(PROMPT_TOKENS))
        engine.submit(Request(str(index), prompt, SamplingParams(max_tokens=4096)))
    while not _all_decode(engine, running):
        engine.step()
    return engine


def _all_decode(engine: Engine, running: int) -> bool:
    step = engine.last_step
    kinds = [chunk.kind for chunk in step.chunks] if step else []
    return kinds == [ChunkKind.DECODE] * running
