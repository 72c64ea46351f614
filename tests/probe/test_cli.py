"""`isobatch probe`: what it prints, and one clear line for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli import main
from reference_engine.probe import VARIANTS, Rule, encode_text, load_probe_config


def failure(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The line on stderr of a command that must end with status 2."""
    with pytest.raises(SystemExit) as ended:
        main(["probe", *arguments])
    assert ended.value.code == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1, f"one line expected, got {line!r}"
    return line


def output(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["probe", *arguments])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_expect_prints_the_rules_answer(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(output(["expect", "--prompt-ids", "1,17,42", "--tokens", "16"], capsys))
    answer = Rule(VARIANTS["eos"]).generate([1, 17, 42], 16)
    assert document["token_ids"] == list(answer.token_ids)
    assert document["finish_reason"] == answer.finish_reason
    assert document["model"] == VARIANTS["eos"].name


def test_expect_takes_text_and_explains(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["expect", "--text", "hello", "--tokens", "3", "--variant", "plain", "--explain"]
    document = json.loads(output(line, capsys))
    assert document["prompt_ids"] == encode_text(VARIANTS["plain"], "hello")
    assert [step["next"] for step in document["steps"]] == document["token_ids"]


def test_export_writes_a_probe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = output(["export", str(tmp_path / "new"), "--variant", "plain"], capsys)
    assert VARIANTS["plain"].name in printed
    assert load_probe_config(tmp_path / "new") == VARIANTS["plain"]


def test_export_spares_a_folder_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    assert "--force" in failure(["export", str(tmp_path)], capsys)
    output(["export", str(tmp_path), "--force"], capsys)
    assert (tmp_path / "mine.txt").read_text() == "precious"


def test_export_writes_one_file_for_llama_cpp(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "probe.gguf"
    output(["export", str(target), "--dtype", "float16"], capsys)
    assert target.read_bytes()[:4] == b"GGUF"
    assert "--force" in failure(["export", str(target)], capsys)
    output(["export", str(target), "--dtype", "q8_0", "--force", "--variant", "qwen"], capsys)
    assert "sliding windows" in failure(
        ["export", str(target), "--force", "--variant", "window"], capsys
    )


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["expect", "--prompt-ids", "1,9999"], "9999 is not in the vocabulary"),
        (["expect", "--prompt-ids", "1,x"], "not a list of numbers"),
        (["expect", "--prompt-ids", "17,42"], "begins with BOS"),
        (["expect"], "--prompt-ids 1,17,42 or --text"),
        (["expect", "--text", "a", "--tokens", "99999"], "exceed the probe's context"),
        (["expect", "--text", "a", "--variant", "nope"], "choose from plain"),
        (["export", "/dev/null/x"], "cannot write /dev/null/x"),
        (["export", "/dev/null/x", "--dtype", "int4"], "none of float32"),
    ],
)
def test_mistakes_are_one_clear_line(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert part in failure(arguments, capsys)
