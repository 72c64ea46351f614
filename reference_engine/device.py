"""Where the engine computes, and in which type: chosen from what is there, or as told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import torch

DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
AUTO: Final = "auto"
KINDS: Final = ("cpu", "cuda")


class DeviceRefused(ValueError):
    """The device is not there or of no known kind; the message is one sentence for the user."""


def choose_device(name: str = AUTO) -> torch.device:
    """``auto``: the first CUDA device if there is one, else the CPU; or ``cpu``, ``cuda``,
    ``cuda:N``. Raises DeviceRefused for anything else and for a device that is not there.
    """
    if name == AUTO:
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in KINDS:
        raise DeviceRefused(f"device {name!r} is unknown; choose auto, cpu, cuda or cuda:N")
    if device.type == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        build = "finds none" if torch.version.cuda else "is built without CUDA"
        raise DeviceRefused(
            f"device {name!r} is not available: this torch {build}; choose cpu or auto"
        )
    index, count = device.index or 0, torch.cuda.device_count()
    if index >= count:
        raise DeviceRefused(f"device {name!r} is not available: this machine has {count} of cuda")
    return torch.device("cuda", index)


def choose_dtype(name: str, device: torch.device, folder: Path | None = None) -> torch.dtype:
    """``auto``: float32 on a CPU; on CUDA the type that the checkpoint in ``folder`` names.

    Half precision is what flash-attn computes in; float32 is what expected answers are made with.
    Raises ValueError for a name that is none of `DTYPES`.
    """
    if name == AUTO:
        stored = _stored_dtype(folder) if folder is not None and device.type == "cuda" else None
        return DTYPES.get(stored or "float32", torch.float32)
    if name not in DTYPES:
        raise ValueError(f"dtype {name!r} is unknown; choose one of auto, {', '.join(DTYPES)}")
    return DTYPES[name]


def _stored_dtype(folder: Path) -> str | None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    stored = config.get("dtype") or config.get("torch_dtype")
    return stored if isinstance(stored, str) else None
