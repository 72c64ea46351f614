"""``isobatch bench`` end to end against the paced server, and what it leaves on disk."""

from __future__ import annotations

import errno
import importlib
import json
import os
from pathlib import Path
from typing import get_type_hints

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from harness.cli.app import main
from harness.load.paced.process import paced_server
from harness.results import run_folder
from harness.results.document import MetricRow
from harness.results.row_file import RowFile
from harness.results.run_folder import RunFolder

FAST = ("--ttft-s", "0.005", "--gap-s", "0.001")


@pytest.fixture(scope="module")
def paced():
    with paced_server(*FAST) as url:
        yield url


def run(*arguments: str) -> int:
    """The exit status."""
    try:
        main(list(arguments))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def rows_by_id(document: dict) -> dict[tuple[str, str, str | None], float | None]:
    return {(r["id"], r["statistic"], r["window"]): r["value"] for r in document["metrics"]}


@pytest.mark.parametrize("rows", ["plain", "zstd"])
def test_bench_writes_a_folder_from_which_the_same_metrics_are_computed(
    rows: str, paced: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    flags = [
        "--no-calibrate",
        "--rows",
        rows,
        "--requests",
        "24",
        "--concurrency",
        "8",
        "--out",
        str(tmp_path),
    ]
    run("bench", paced, "--prompts", "100:200", "--slo", "e2e.response=60", "--json", *flags)
    document = json.loads(capsys.readouterr().out)
    values = rows_by_id(document)
    assert values["requests.complete", "value", None] == 24
    assert values["goodput", "value", None] == 1.0
    assert values["tokens.mismatched_requests", "value", None] == 0
    ttft = values["ttft.service", "mean", "whole"]
    assert ttft is not None
    assert ttft >= 0.005
    folder = document["folder"]
    result = json.loads((Path(folder) / "result.json").read_text())
    assert result["status"] == "complete"
    assert result["raw"][0]["path"] == (
        "requests.jsonl" if rows == "plain" else "requests.jsonl.zst"
    )
    assert (Path(folder) / "report.html").is_file()
    assert run("results", "verify", str(tmp_path)) == 0
    capsys.readouterr()
    assert run("metrics", folder, "--slo", "e2e.response=60", "--json") == 0
    again = json.loads(capsys.readouterr().out)
    for row, first in zip(again, document["metrics"], strict=True):
        assert {**row, "workload_sha256": first["workload_sha256"]} == first


# The paced server ends with its standard input, and a launched server has none.
STARTER = (
    "import subprocess, sys; "
    "command = [sys.executable, '-m', 'harness.load.paced.server', *sys.argv[1:]]; "
    "subprocess.Popen(command, stdin=subprocess.PIPE).wait()"
)
RECIPE = """
title = "The paced server"
homepage = "https://example.org"
checkpoint = "safetensors"
model_id = "paced"
command = ["{python}", "-c", "STARTER", "--port", "{port}"]
identify = ["{python}", "-c", "print('paced 1.2')"]
ready_path = "/v1/models"
ready_timeout_s = 60

[devices.cpu]
tried = true
disk_gb = 0
install_minutes = 0
memory_gb = 1
install = []

[variants.quick]
title = "quick"
dtype = "float32"
arguments = ["--ttft-s", "0.005", "--gap-s", "0.001"]
"""


def test_a_launched_server_is_measured_under_the_name_it_is_checked_under(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """The leaderboard joins numbers and verdicts by name, version, model, dtype and flags."""
    recipe, model = tmp_path / "fake.toml", tmp_path / "model"
    recipe.write_text(RECIPE.replace("STARTER", STARTER))
    model.mkdir()
    (model / "config.json").write_text("{}")
    flags = ["--no-calibrate", "--no-page", "--no-warmup", "--requests", "2", "--json"]
    run(
        *("bench", "--launch", str(recipe), "--model", str(model), "--prompts", "text"),
        *(*flags, "--out", str(tmp_path)),
    )
    folder = json.loads(capsys.readouterr().out)["folder"]
    server = json.loads((Path(folder) / "result.json").read_text())["server"]
    assert (server["name"], server["version"]) == ("The paced server", "paced 1.2")
    assert (server["recipe"], server["variant"]) == ("fake", "quick")
    assert (server["model"], server["dtype"]) == ("model", "float32")
    assert server["flags"] == ["--ttft-s", "0.005", "--gap-s", "0.001"]


@pytest.mark.parametrize("command", ["bench", "sweep", "effects"])
def test_the_help_leaves_room_for_its_sentences(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """One long type name would squeeze the sentences of all options into a third of the page."""
    monkeypatch.setenv("COLUMNS", "100")
    module = importlib.import_module(f"harness.cli.{command}")
    hints = get_type_hints(module.command, include_extras=True)
    run(command, "--help")
    lines = capsys.readouterr().out.splitlines()
    for name, hint in hints.items():
        for option in getattr(hint, "__metadata__", ()):
            assert option.help[-1] == ".", f"{name}: a whole sentence"
            begin = " ".join(option.help.split()[:3])
            [column] = {line.index(begin) for line in lines if begin in line}
            assert column <= 45, f"{name}: its sentence begins in column {column}"


def test_bench_without_a_server_or_with_two_says_what_to_give(capsys: pytest.CaptureFixture[str]):
    assert run("bench") == 2
    assert "give the server's URL" in capsys.readouterr().err
    assert run("bench", "http://127.0.0.1:1", "--launch", "isobatch") == 2
    assert "not both" in capsys.readouterr().err


def test_a_tokenizer_fills_the_third_ledger(
    paced: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    tokenizer = Tokenizer(WordLevel({"tok": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    flags = ["--no-calibrate", "--no-page", "--no-warmup", "--json", "--tokenizer", str(tmp_path)]
    flags += ["--prompts", "9:20", "--requests", "3", "--concurrency", "2", "--out", str(tmp_path)]
    for workers in ("1", "2"):
        run("bench", paced, *flags, "--workers", workers)
        values = rows_by_id(json.loads(capsys.readouterr().out))
        ledgers = [values[f"tokens.{name}", "value", None] for name in ("server", "ids", "text")]
        assert ledgers[0] is not None
        assert ledgers == [ledgers[0]] * 3
    assert run("bench", paced, *flags, "--tokenizer", str(tmp_path / "no.json")) == 2
    assert "is no tokenizer.json" in capsys.readouterr().err


def test_bench_replays_a_trace(paced: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    trace = tmp_path / "t.jsonl"
    rows = [{"arrival_s": i / 50, "prompt_tokens": 9, "output_tokens": 3} for i in range(10)]
    trace.write_text("\n".join(map(json.dumps, rows)))
    run(
        "bench",
        paced,
        "--no-calibrate",
        "--no-page",
        "--trace",
        str(trace),
        "--json",
        "--out",
        str(tmp_path / "runs"),
    )
    values = rows_by_id(json.loads(capsys.readouterr().out))
    assert values["requests.complete", "value", None] == 10
    assert values["tokens.server", "value", None] == 30


def test_failures_are_counted_by_class_and_the_status_says_so(
    paced: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    flags = [
        "--no-calibrate",
        "--no-page",
        "--requests",
        "4",
        "--no-warmup",
        "--json",
        "--out",
        str(tmp_path),
    ]
    status = run("bench", paced, "--param", 'paced={"error_at": 2}', *flags)
    assert status == 2, "nothing succeeded, so nothing was measured"
    out, err = capsys.readouterr()
    assert "server-error" in err
    [failed] = [r for r in json.loads(out)["metrics"] if r["id"] == "requests.failed"]
    assert (failed["value"], failed["note"]) == (4, "4 server-error")
    result = json.loads((Path(json.loads(out)["folder"]) / "result.json").read_text())
    assert result["status"] == "crashed", "a run that measured nothing is not complete"
    assert result["error"].startswith("no request succeeded: server-error")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["http://127.0.0.1:9"], "nothing listens there"),
        (["ftp://x"], "must begin with http"),
        (["http://127.0.0.1:9", "--preset", "nonesuch"], "no preset 'nonesuch'; known:"),
        (["http://127.0.0.1:9", "--slo", "speed=1"], "objective 'speed=1'"),
        (["http://127.0.0.1:9", "--rate", "1", "--concurrency", "2"], "choose one"),
        (["http://127.0.0.1:9", "--rate", "0"], "more than 0 requests a second"),
        (["http://127.0.0.1:9", "--rate", "nan"], "more than 0 requests a second"),
        (["http://127.0.0.1:9", "--param", "x"], "expected NAME=VALUE"),
        (["http://127.0.0.1:9", "--trace", "nowhere.csv"], "cannot be read"),
    ],
)
def test_what_a_user_can_put_right_is_one_line(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
):
    assert run("bench", *arguments) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


def test_a_folder_that_cannot_be_written_is_one_line(
    paced: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").write_text("x")
    assert run("bench", paced, "--out", str(tmp_path / "file" / "runs")) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize("refused", ["rows", "document"])
def test_a_disk_that_fills_up_costs_the_folder_not_the_numbers(
    refused: str,
    paced: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    """The measurement goes to its end and is shown, then comes the one line about the disk."""

    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if refused == "rows":
        monkeypatch.setattr(RowFile, "_write", no_space)
    else:
        honest = RunFolder.add_metrics

        def filled(folder: RunFolder, rows: list[MetricRow]) -> None:
            with monkeypatch.context() as full:
                full.setattr(run_folder, "write_atomically", no_space)
                honest(folder, rows)

        monkeypatch.setattr(RunFolder, "add_metrics", filled)
    flags = ["--no-calibrate", "--no-warmup", "--prompts", "9:20", "--out", str(tmp_path)]
    assert run("bench", paced, *flags, "--requests", "3", "--json") == 2
    out, err = capsys.readouterr()
    assert rows_by_id(json.loads(out))["requests.complete", "value", None] == 3
    [line] = err.strip().splitlines()
    assert "no space left on device" in line
    [folder] = tmp_path.iterdir()
    document = json.loads((folder / "result.json").read_text())
    assert document["status"] == "crashed"
    assert rows_by_id(document)["requests.complete", "value", None] == 3
    assert document["client_health"]["valid"] is not None


@pytest.mark.parametrize("text", ["", "{}\n", "nonsense\n"])
def test_metrics_of_a_bad_file_is_one_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "requests.jsonl"
    path.write_text(text)
    assert run("metrics", str(path)) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
