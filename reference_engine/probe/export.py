"""Write a probe as a Hugging Face folder, the same bytes every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, get_args

from reference_engine.probe.chat import CHAT_TEMPLATE
from reference_engine.probe.config import FORMAT, ProbeConfig
from reference_engine.probe.model_document import model_document
from reference_engine.probe.tokenizer import (
    as_json_text,
    tokenizer_config_document,
    tokenizer_document,
)

Dtype = Literal["float32", "bfloat16", "float16"]
DTYPES: Final[tuple[str, ...]] = get_args(Dtype)
PROBE_FILE: Final = "probe.json"


class ExportRefused(ValueError):
    """The folder can't be written, or the dtype is none; the message says what to do."""


def export_probe(config: ProbeConfig, directory: str | Path, dtype: str = "float32") -> Path:
    """Write config, weights, tokenizer, generation config and ``probe.json`` into ``directory``.

    The folder is made if it does not exist; files of an earlier export are replaced. ``dtype`` is
    float32, bfloat16 or float16. Returns the folder. Raises ExportRefused, a ValueError, for an
    unknown dtype and for a folder that can't be written.
    """
    if dtype not in DTYPES:
        raise ExportRefused(f"dtype {dtype!r} is none of {', '.join(DTYPES)}")
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, document in _documents(config, dtype).items():
            (folder / name).write_text(as_json_text(document), encoding="utf-8")
        (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
        _write_weights(config, folder / "model.safetensors", dtype)
    except OSError as error:
        raise ExportRefused(
            f"cannot write {folder}: {error.strerror or error}; choose a folder you may write"
        ) from None
    return folder


def _write_weights(config: ProbeConfig, path: Path, dtype: str) -> None:
    import torch
    from safetensors.torch import save

    from reference_engine.probe.weights import compile_weights

    tensors = {
        name: torch.from_numpy(array).to(getattr(torch, dtype)).contiguous()
        for name, array in compile_weights(config).items()
    }
    path.write_bytes(save(tensors, metadata={"format": "pt"}))


def _documents(config: ProbeConfig, dtype: str) -> dict[str, dict[str, Any]]:
    return {
        "config.json": model_document(config, dtype),
        "generation_config.json": {
            "bos_token_id": config.bos_id,
            "eos_token_id": config.eos_id,
            "pad_token_id": config.pad_id,
            "do_sample": False,
        },
        "tokenizer.json": tokenizer_document(config),
        "tokenizer_config.json": tokenizer_config_document(config),
        PROBE_FILE: {"format": FORMAT, "dtype": dtype, "config": config.to_json()},
    }
