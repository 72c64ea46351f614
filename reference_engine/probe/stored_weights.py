"""A probe as transformers loads it, its weights stored as they are or in fewer bits.

Weight-only storage comes in two kinds. Of the first, every matrix is rounded and read back, so that
what is multiplied is a plain tensor: int8 and int4 (one scale a row, to nearest) and GGUF's blocks
(the ``gguf`` package's own quantisation). Of the second, a library that transformers offers holds
the weights and multiplies by them (https://huggingface.co/docs/transformers/quantization/overview):
torchao, optimum-quanto and bitsandbytes, which must be installed besides.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Final

_BY_ROW: Final = ("int8", "int4")
ROUNDED: Final = ("stored", "int8", "int4", "Q8_0", "Q5_0", "Q4_0")
"""Weights as they are, or rounded first and multiplied as plain tensors."""

_PACKAGES: Final = {
    "torchao": ("torchao", "accelerate"),
    "quanto": ("optimum.quanto", "accelerate"),
    "bitsandbytes": ("bitsandbytes", "accelerate"),
}
BY_LIBRARY: Final = (
    "torchao-int8",
    "torchao-int4",
    "quanto-int8",
    "quanto-int4",
    "bitsandbytes-int8",
)
"""Weights that a library holds. The int8 of bitsandbytes rounds what it multiplies by as well."""

WEIGHTS: Final = (*ROUNDED, *BY_LIBRARY)


def missing_packages(name: str) -> tuple[str, ...]:
    """What must be installed for weights ``name`` of `WEIGHTS` and is not."""
    wanted = _PACKAGES.get(name.partition("-")[0], ())
    return tuple(p.replace(".", "-") for p in wanted if not _installed(p))


def load_with_weights(directory: str | Path, dtype: str, name: str) -> Any:
    """The exported model in ``directory`` as transformers loads it in ``dtype``.

    ``name`` is one of `WEIGHTS`. Raises ImportError when a library is missing.
    """
    import torch
    from transformers import AutoModelForCausalLM

    options: dict[str, Any] = {"dtype": getattr(torch, dtype)}
    if name in BY_LIBRARY:
        options |= {"quantization_config": _library_config(name), "device_map": "cpu"}
    model = AutoModelForCausalLM.from_pretrained(str(directory), **options)
    if name in ROUNDED and name != "stored":
        _round_matrices(model, name)
    return model


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # the parent of a dotted name
        return False


def _library_config(name: str) -> Any:
    """How transformers is told to use a library."""
    import torch
    from transformers import BitsAndBytesConfig, QuantoConfig, TorchAoConfig

    library, bits = name.split("-")
    if library == "quanto":
        return QuantoConfig(weights=bits)
    if library == "bitsandbytes":
        return BitsAndBytesConfig(load_in_8bit=True)
    from torchao.quantization import IntxWeightOnlyConfig

    return TorchAoConfig(IntxWeightOnlyConfig(weight_dtype=getattr(torch, bits)))


def _round_matrices(model: Any, name: str) -> None:
    """Store every matrix in ``name`` and read it back, as weight-only engines do."""
    import torch

    for parameter in model.parameters():
        if parameter.ndim == 2:
            whole = parameter.detach().float()
            read = _round_rows(whole, int(name[3:])) if name in _BY_ROW else _gguf(whole, name)
            parameter.data = torch.as_tensor(read).reshape(parameter.shape).to(parameter.dtype)


def _round_rows(matrix: Any, bits: int) -> Any:
    """Whole numbers of ``bits`` bits with one scale a row, to nearest: plain int8 and int4."""
    top = 2 ** (bits - 1) - 1
    scale = matrix.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / top
    return (matrix / scale).round() * scale


def _gguf(matrix: Any, name: str) -> Any:
    import gguf

    kind = gguf.GGMLQuantizationType[name]
    return gguf.quants.dequantize(gguf.quants.quantize(matrix.numpy(), kind), kind)
