"""A healthy server that is not batch invariant, and the tiny trained-like model that it serves.

Our engine in bf16, with matrix products whose sums are cut by the number of rows, as GPU libraries
do it: the bits of a row move with its neighbours, as on most real servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from reference_engine.attention.rows import RowAttention

if TYPE_CHECKING:
    from torch import Tensor

    from reference_engine.attention.backend import KeyValueSource
    from reference_engine.model import LoadedModel

_TEXT = (Path(__file__).parents[2] / "LICENSE").read_text(encoding="utf-8")


def write_checkpoint(folder: Path, *, vocabulary: int = 400, spread: float = 0.25) -> Path:
    """A random Llama with a byte-level tokenizer of plain letters, so that all it says is text.

    ``spread`` is that of its weights: the smaller, the flatter its logits and the more near-ties.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=["<end>"])
    tokenizer.train_from_iterator(_TEXT.lower().splitlines(), trainer)
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=spread,
        bos_token_id=None,
        eos_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


class SplitWeight:
    """A weight matrix whose sums are cut into parts by the number of rows, as cuBLAS does it."""

    rows_are_alone = True  # it takes any number of rows

    def __init__(self, weight: torch.Tensor) -> None:
        self.out_features, self.in_features = weight.shape
        self._weight = weight.detach()

    def times(self, x: torch.Tensor) -> torch.Tensor:
        """``x @ weight.T``."""
        parts = 1 if x.shape[0] <= 4 else 2 if x.shape[0] <= 16 else 4
        rows, columns = x.chunk(parts, dim=1), self._weight.chunk(parts, dim=1)
        out = F.linear(rows[0], columns[0])
        for row, column in zip(rows[1:], columns[1:], strict=True):
            out = out + F.linear(row, column)
        return out


class _Widened:
    """The keys and values of some slots of a bf16 cache, in fp32."""

    def __init__(self, source: KeyValueSource, slots: Tensor) -> None:
        self._source = source
        self._slots = slots

    def rows(self, layer: int) -> tuple[Tensor, Tensor]:
        """Those slots in order. Each: [kv_heads, slots, head_dim]."""
        keys, values = self._source.rows(layer)
        return keys[:, self._slots].float(), values[:, self._slots].float()


class RoundedAttention(RowAttention):
    """Our attention over a bf16 cache, its results rounded to bf16."""

    def attend(
        self, plan: Any, source: Any, layer: int, queries: Tensor, **settings: Any
    ) -> Tensor:
        """See `AttentionBackend.attend`."""
        widened: Any = _Widened(source, torch.from_numpy(plan.slots))
        near = replace(plan, slots=np.arange(len(plan.slots)))
        out = super().attend(near, widened, layer, queries.float(), **settings)
        return out.to(queries.dtype)


@contextmanager
def inexact_arithmetic() -> Iterator[None]:
    """Models that are loaded while the block lasts have no exact arithmetic."""
    from reference_engine import model, numerics

    def rounded(*_: Any) -> RoundedAttention:
        return RoundedAttention()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numerics, "LinearWeight", SplitWeight)
        patch.setattr(model, "choose_backend", rounded)
        yield


def inexact_model(folder: Path) -> LoadedModel:
    """The checkpoint in bf16 without the contract."""
    from reference_engine.model import load_model

    with inexact_arithmetic():
        return load_model(folder, dtype="bfloat16")
