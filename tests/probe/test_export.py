"""The exported folder: the same bytes every time, the files an engine needs, errors in words."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from reference_engine.probe import (
    DTYPES,
    VARIANTS,
    ExportRefused,
    NotAProbe,
    export_probe,
    load_probe_config,
)
from reference_engine.probe.config import FORMAT
from tests.probe.conftest import Exported

LARGEST_MB = 25


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_two_builds_give_the_same_bytes(
    variant: str, dtype: str, exported: Exported, tmp_path: Path
) -> None:
    first = digests(exported(variant, dtype))
    assert digests(export_probe(VARIANTS[variant], tmp_path, dtype)) == first
    assert set(first) >= {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "probe.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_export_is_small(variant: str, exported: Exported) -> None:
    folder = exported(variant, "float32")
    assert sum(path.stat().st_size for path in folder.iterdir()) < LARGEST_MB * 1e6


@pytest.mark.parametrize("variant", ["qwen", "window"])
def test_a_qwen2_head_is_an_equal_part_of_the_residual_stream(
    variant: str, exported: Exported
) -> None:
    """vLLM and llama.cpp reckon a Qwen2 head's size so, whatever ``head_dim`` says."""
    config = json.loads((exported(variant, "float32") / "config.json").read_text())
    assert config["hidden_size"] == config["num_attention_heads"] * config["head_dim"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_folder_tells_its_configuration(variant: str, exported: Exported) -> None:
    assert load_probe_config(exported(variant, "bfloat16")) == VARIANTS[variant]


def test_a_file_in_the_way_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ExportRefused, match="cannot write"):
        export_probe(VARIANTS["plain"], tmp_path / "taken")


def test_an_unknown_dtype_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(ExportRefused, match="'int4' is none of float32, bfloat16, float16"):
        export_probe(VARIANTS["plain"], tmp_path, "int4")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "No such file"),
        ("{", "not JSON"),
        ("[]", "not a probe description"),
        (json.dumps({"format": "isobatch.probe/1"}), "export the probe again"),
        (json.dumps({"format": FORMAT}), "config"),
        (json.dumps({"format": FORMAT, "config": {"name": "x"}}), "taps"),
    ],
)
def test_a_folder_that_is_no_probe_says_so(content: str | None, part: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "probe.json").write_text(content)
    with pytest.raises(NotAProbe, match=part):
        load_probe_config(tmp_path)
