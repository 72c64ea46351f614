"""Loading: any transformers causal language model, with its reductions replaced by exact ones."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from reference_engine.attention import exact
from reference_engine.attention.backend import AttentionBackend, choose_backend
from reference_engine.attention.exact import AttentionStep
from reference_engine.batch import BatchBuilder, BatchSequence, RaggedBatch
from reference_engine.device import AUTO, DTYPES, choose_device, choose_dtype
from reference_engine.exact_experts import ExactExperts
from reference_engine.exact_modules import UnknownLayer, linear_weights, make_exact
from reference_engine.fused_modules import fuse
from reference_engine.huge_pages import use_huge_pages
from reference_engine.numerics import KEY_BLOCK, ROW_TILE, padded
from reference_engine.row_kernels import TORCH, RowKernels, choose_kernels

BATCH_DEPENDENT_ROPE: Final = ("dynamic", "longrope")
"""Rotary kinds whose frequencies follow the longest request of the batch."""


VECTOR: Final = 32
"""Floats that one turn of torch's widest elementwise loop takes."""

SMALL_BYTES: Final = 1 << 24
"""Below this it does not matter how weights lie in memory."""


class ModelRefused(ValueError):
    """The checkpoint cannot be served; the message is one sentence that says why."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One attention layer: ``group`` query heads share each of ``kv_heads`` key heads."""

    kv_heads: int
    group: int
    head_dim: int
    window: int | None


class LoadedModel:
    """A causal language model that computes every row in the same way whatever the batch.

    Attributes: vocab_size, eos_ids, bos_id, max_context_tokens, layers (one `LayerShape` each),
    path (the checkpoint folder, which holds the tokenizer too, or None for a model made in memory),
    device and dtype (of weights, activations, keys and values), kernels and attention (the
    arithmetic that `solo` and the engine use alike), asks_for_shapes (whether layers read sizes of
    tensors back from the device, as mixtures of experts do).
    """

    def __init__(
        self,
        model: nn.Module,
        path: Path | None = None,
        *,
        kernels: RowKernels | None = None,
        attention: AttentionBackend | None = None,
    ) -> None:
        """Take over a transformers model where it is: it is changed in place.

        ``kernels`` and ``attention`` are chosen for its device and type unless they are given.
        Raises ModelRefused, or DeviceRefused where the device's kernels are not installed.
        """
        config: Any = model.config
        self.device: torch.device = model.device  # type: ignore[assignment]
        self.dtype: torch.dtype = model.dtype  # type: ignore[assignment]
        self.kernels = kernels or choose_kernels(self.device)
        _refuse_unsupported(config)
        exact.register()
        model.eval().requires_grad_(False)
        try:
            model.set_attn_implementation(exact.IMPLEMENTATION)  # type: ignore[operator]
            if self.kernels is TORCH:
                fuse(model)
            make_exact(model, self.kernels)
        except UnknownLayer as error:
            raise ModelRefused(f"{config.model_type} is not supported: {error}") from None
        self._model = model
        self.path = path
        self.architecture = str(config.model_type)
        self.vocab_size = int(config.vocab_size)
        self.max_context_tokens = int(config.max_position_embeddings)
        self.eos_ids = _eos_ids(model)
        self.bos_id: int | None = getattr(config, "bos_token_id", None)
        self.attention = attention or choose_backend(self.device, self.dtype)
        self.asks_for_shapes = any(isinstance(m, ExactExperts) for m in model.modules())
        self._row_multiple = _row_multiple(self.linear_shapes())
        self.layers = self._discover_layers()

    def logits(self, batch: RaggedBatch, step: AttentionStep) -> Tensor:
        """Logits of the batch's ``logit_rows``, in fp32: [len(logit_rows), vocab]."""
        ids, positions = exact.positions_tensor(batch, self.padded_rows(batch.num_tokens))
        wanted = len(batch.logit_rows)
        keep = torch.zeros(padded_wanted(wanted), dtype=torch.long)
        keep[:wanted] = torch.tensor(batch.logit_rows, dtype=torch.long)
        logits = self.forward(
            ids.to(self.device), positions.to(self.device), keep.to(self.device), step
        )
        return logits[:wanted]

    def forward(self, ids: Tensor, positions: Tensor, keep: Tensor, step: AttentionStep) -> Tensor:
        """The model itself, on tensors of its device alone.

        ids, positions: [1, rows], rows as `padded_rows` has them; keep: [wanted], the rows whose
        logits are computed, as many as `padded_wanted` has them. Returns [wanted, vocab] in fp32.
        """
        with torch.inference_mode():
            output = self._model(
                input_ids=ids,
                position_ids=positions,
                use_cache=False,
                logits_to_keep=keep,
                attention_step=step,
            )
        return output.logits[0].float()  # type: ignore[no-any-return]

    def padded_rows(self, tokens: int) -> int:
        """Rows that a batch of so many tokens is computed with."""
        return padded(tokens, self._row_multiple)

    def linear_shapes(self) -> set[tuple[int, int]]:
        """The shapes of all weight matrices, [out, in]."""
        return {(m.out_features, m.in_features) for m in linear_weights(self._model)}

    def _discover_layers(self) -> tuple[LayerShape, ...]:
        """Run one token and note what each attention layer asks for."""
        batch = BatchBuilder(KEY_BLOCK).build([BatchSequence((0,), 0, ((0,),), 1)])
        recorder = _LayerRecorder(batch)
        self.logits(batch, recorder)
        seen = sorted(recorder.shapes)
        if seen != list(range(len(seen))) or not seen:
            raise ModelRefused(
                f"{self.architecture} is not supported: its attention does not go through "
                "transformers' AttentionInterface layer by layer"
            )
        return tuple(recorder.shapes[layer] for layer in seen)


def padded_wanted(rows: int) -> int:
    """Rows whose logits are computed where so many are wanted."""
    return max(padded(rows, ROW_TILE), ROW_TILE)


def _row_multiple(shapes: set[tuple[int, int]]) -> int:
    """Rows of a batch come in multiples of this.

    Torch computes elementwise functions on vectors of `VECTOR` floats and the rest in another way;
    a multiple for which no layer's output, however narrow, leaves a rest keeps every row alike.
    """
    multiple = ROW_TILE
    while any(out_features * multiple % VECTOR for out_features, _ in shapes):
        multiple *= 2
    return multiple


class _LayerRecorder(AttentionStep):
    """An attention step that returns zeros and remembers the layers' shapes."""

    def __init__(self, batch: RaggedBatch) -> None:
        super().__init__(batch, source=None)  # type: ignore[arg-type]
        self.shapes: dict[int, LayerShape] = {}

    def attend(
        self,
        layer: int,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        scaling: float,
        window: int | None,
        softcap: float | None,
    ) -> Tensor:
        if keys.shape != values.shape or queries.shape[-1] != keys.shape[-1]:
            raise ModelRefused(
                "attention with keys and values of different widths is not supported"
            )
        self.shapes[layer] = LayerShape(
            kv_heads=keys.shape[0],
            group=queries.shape[0] // keys.shape[0],
            head_dim=keys.shape[-1],
            window=window,
        )
        return queries.new_zeros(queries.shape[1], queries.shape[0], queries.shape[2])


def load_model(path: str | Path, *, dtype: str = "float32", device: str = AUTO) -> LoadedModel:
    """Load a checkpoint folder in the Hugging Face layout onto a device.

    ``device``: see `choose_device`. ``dtype``: see `choose_dtype`; weights are stored in this type
    and activations have it; reductions accumulate in fp32.
    Raises DeviceRefused for a device that is not there, and ModelRefused when the folder is no
    checkpoint, is damaged or incomplete, holds NaN weights, or is of an architecture that the
    engine cannot make exact.
    """
    folder = Path(path)
    if dtype not in (AUTO, *DTYPES):
        raise ModelRefused(
            f"dtype {dtype!r} is unknown; choose one of {', '.join((AUTO, *DTYPES))}"
        )
    chosen = choose_device(device)
    if not folder.is_dir():
        raise ModelRefused(f"{folder} is not a folder; give the folder of a checkpoint")
    if not (folder / "config.json").is_file():
        raise ModelRefused(f"{folder} is no checkpoint: it has no config.json")
    try:
        json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelRefused(f"{folder / 'config.json'} is not JSON: {error}") from None
    model = _read_weights(folder, choose_dtype(dtype, chosen, folder)).to(chosen)
    loaded = LoadedModel(model, folder)
    _settle(model)
    return loaded


def _settle(model: nn.Module) -> None:
    """Let go of the checkpoint file, of which most weights are rearranged copies by now."""
    kept = 0
    for weight in model.parameters():
        weight.data = weight.data.clone()
        kept += weight.nbytes
    on_cpu = all(weight.device.type == "cpu" for weight in model.parameters())
    if on_cpu and kept > SMALL_BYTES:
        use_huge_pages()


def _read_weights(folder: Path, dtype: torch.dtype) -> nn.Module:
    from transformers import AutoModelForCausalLM

    exact.register()
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            attn_implementation=exact.IMPLEMENTATION,
            output_loading_info=True,
            local_files_only=True,
        )
    except Exception as error:  # safetensors, torch and transformers each raise their own kinds
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelRefused(f"{folder} cannot be loaded: {reason}") from None
    for kind in ("missing_keys", "mismatched_keys"):
        if report[kind]:
            name = sorted(str(key) for key in report[kind])[0]
            raise ModelRefused(
                f"{folder} is incomplete: {len(report[kind])} weights are missing or of the wrong "
                f"shape, {name} for one"
            )
    for name, weight in model.named_parameters():
        if not bool(torch.isfinite(weight).all()):
            raise ModelRefused(f"{folder} is damaged: weight {name} has NaN or infinite values")
    return model  # type: ignore[no-any-return]


def _refuse_unsupported(config: Any) -> None:
    if getattr(config, "is_encoder_decoder", False):
        raise ModelRefused(f"{config.model_type} is not a causal language model")
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = [rope, *(v for v in rope.values() if isinstance(v, dict))]
    for kind in kinds:
        name = kind.get("rope_type", "default")
        if name in BATCH_DEPENDENT_ROPE:
            raise ModelRefused(
                f"rotary embedding of type {name!r} is not supported: its frequencies depend on "
                "the longest request of the batch, so the answer would too"
            )


def _eos_ids(model: Any) -> frozenset[int]:
    generation = getattr(model, "generation_config", None)
    eos = getattr(generation, "eos_token_id", None)
    if eos is None:
        eos = getattr(model.config, "eos_token_id", None)
    if eos is None:
        return frozenset()
    return frozenset(eos) if isinstance(eos, (list, tuple)) else frozenset({int(eos)})
