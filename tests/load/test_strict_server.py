"""``isobatch bench`` on a server as narrow as `transformers serve`: measured, and said what not."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from harness.cli.app import main
from tests.load.strict_server import Strict, serving


def bench(strict: Strict, tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> Any:
    """The exit status, the printed document, the stored one and what was said of errors."""
    flags = ["--no-calibrate", "--no-page", "--requests", "6", "--concurrency", "2", "--json"]
    status = 0
    with serving(strict) as url:
        try:
            main(["bench", url, *flags, "--out", str(tmp_path), *more])
        except SystemExit as ended:
            status = int(ended.code or 0)
    out, err = capsys.readouterr()
    shown = json.loads(out) if out else None
    stored = json.loads((Path(shown["folder"]) / "result.json").read_text()) if shown else None
    return status, shown, stored, err


def value(document: dict[str, Any], metric: str, statistic: str = "value", window: Any = None):
    [row] = [
        r
        for r in document["metrics"]
        if (r["id"], r["statistic"], r["window"]) == (metric, statistic, window)
    ]
    return row["value"], row.get("note")


def test_a_strict_server_is_measured_and_the_result_says_what_was_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    strict = Strict()
    status, shown, stored, _ = bench(strict, tmp_path, capsys)
    # The server runs in this process too, so the client may seem to have no processor left.
    assert status == 0 or not stored["client_health"]["valid"]
    assert value(shown, "requests.complete") == (6, "6 of them gave a finish reason but no [DONE]")
    wording = stored["server"]["wording"]
    assert set(wording["without"]) == {"ignore_eos", "return_token_ids", "prompts as token ids"}
    assert wording["without"]["ignore_eos"] == "Unexpected fields: ['ignore_eos']"
    assert wording["streams_end_without_done"] is True
    assert value(shown, "tokens.server")[0] == value(shown, "tokens.chunks")[0]
    assert value(shown, "tokens.ids") == (None, None)
    assert value(shown, "lengths.prompt_off_plan")[0] == 0, "the text had the tokens of the ids"
    assert value(shown, "lengths.output_off_plan")[0] == 0
    assert all(len(body["prompt"]) > 1 for body in strict.answered)
    assert main_metrics(shown["folder"], capsys) == shown["metrics"]


def main_metrics(folder: str, capsys: pytest.CaptureFixture[str]) -> Any:
    """The rows that `isobatch metrics` computes from the stored ones, with the same digest."""
    with suppress(SystemExit):
        main(["metrics", folder, "--json"])
    rows = json.loads(capsys.readouterr().out)
    digest = json.loads((Path(folder) / "result.json").read_text())["workloads"][0]["sha256"]
    return [{**row, "workload_sha256": digest} for row in rows]


def test_answers_that_end_early_without_ignore_eos_are_counted_against_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    _, shown, _, _ = bench(Strict(early=True), tmp_path, capsys)
    assert value(shown, "lengths.output_off_plan")[0] == 6


@pytest.mark.parametrize("workers", ["1", "2"])
def test_what_nobody_counts_is_null_unless_there_is_a_tokenizer(
    workers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    _, shown, _, _ = bench(Strict(tells_usage=False), tmp_path, capsys, "--workers", workers)
    output, note = value(shown, "throughput.output", window="whole")
    assert output is None
    assert "nobody counts the tokens" in note
    assert value(shown, "tpot", "mean", "whole")[0] is None
    assert value(shown, "tokens.server")[0] is None
    tokenizer = Tokenizer(WordLevel({"tok": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    counted = ("--workers", workers, "--tokenizer", str(tmp_path))
    _, shown, _, _ = bench(Strict(tells_usage=False), tmp_path, capsys, *counted)
    output, note = value(shown, "throughput.output", window="whole")
    assert output > 0
    assert note.endswith("output tokens counted by the client's tokenizer")
    assert value(shown, "throughput.total", window="whole")[0] is None, "prompts are not counted"


def test_a_stream_that_is_cut_before_its_finish_reason_is_still_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    status, shown, _, _ = bench(Strict(cut=True), tmp_path, capsys)
    assert status != 0
    failed, note = value(shown, "requests.failed")
    assert failed > 0
    assert "disconnected" in note


def test_a_field_that_the_user_gave_is_not_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    status, _, _, err = bench(Strict(), tmp_path, capsys, "--param", "ignore_eos=true")
    assert status == 2
    assert "Unexpected fields" in err


def test_a_parameter_wins_over_the_load_and_null_takes_it_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    strict = Strict()
    _, _, stored, _ = bench(
        strict, tmp_path, capsys, "--param", "temperature=0.5", "--param", "ignore_eos=null"
    )
    assert {body["temperature"] for body in strict.answered} == {0.5}
    assert "ignore_eos" not in stored["server"]["wording"]["without"]


def test_prompts_without_a_text_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    status, _, _, err = bench(Strict(model="isobatch-probe-utf8-r2"), tmp_path, capsys)
    assert status == 2
    assert "--prompts text" in err
    assert len(err.strip().splitlines()) == 1
