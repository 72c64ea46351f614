"""Ctrl-C, a kill, and servers that die under way: the run ends in bounded time, what ended is on
disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from harness.load.paced.process import paced_server
from harness.metrics.row_files import read_requests
from harness.transcript import Ending


def bench(url: str, out: Path, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "harness.cli", "bench", url, "--out", str(out), *flags]
    return subprocess.Popen(
        [*command, "--no-calibrate", "--no-page", "--no-warmup", "--prompts", "9:20"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(condition, seconds: float = 90.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


def hanging(url: str) -> int:
    """How many answers of the paced server have stopped for good."""
    with urllib.request.urlopen(f"{url}/paced/hanging") as answer:
        return int(json.load(answer)["answers"])


RECIPE = """
title = "short ones, then one that never ends"
requests = 40
concurrency = 4
params = {{ paced = {{ gap_s = 0.002, {last} }} }}
[prompt_tokens]
kind = "fixed"
tokens = 5
[output_tokens]
kind = "{kind}"
{lengths}
"""


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_interrupted_runs_keep_what_ended(tmp_path: Path, workers: str):
    # Answers of 2 tokens end, those of more hang: all four slots are stuck before long.
    lengths = "at = [0.0, 0.7, 0.71, 1.0]\ntokens = [2, 2, 9, 9]"
    recipe = tmp_path / "r.toml"
    recipe.write_text(RECIPE.format(last="hang_at = 4", kind="quantiles", lengths=lengths))
    with paced_server("--ttft-s", "0.002") as url:
        process = bench(url, tmp_path, "--preset", str(recipe), "--workers", workers)
        wait_for(lambda: hanging(url) == 4)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=90)
    assert process.returncode == 130, err
    [folder] = {p.parent for p in tmp_path.glob("*/result.json")}
    kept = read_requests(folder)
    assert kept
    complete = [r for r in kept if r.ending is Ending.COMPLETE]
    stopped = [r for r in kept if r.ending is Ending.CANCELLED]
    assert len(complete) + len(stopped) == len(kept)
    assert complete
    assert stopped, "what was in flight is kept too"
    assert all(len(r.first.chunks) == 4 for r in stopped)
    assert json.loads((folder / "result.json").read_text())["status"] == "interrupted"


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_a_killed_run_keeps_the_rows_of_what_had_ended(tmp_path: Path, workers: str):
    """Rows are written while the run goes on: no handler runs when a process is killed."""
    lengths = "at = [0.0, 0.7, 0.71, 1.0]\ntokens = [2, 2, 9, 9]"
    recipe = tmp_path / "r.toml"
    recipe.write_text(RECIPE.format(last="hang_at = 4", kind="quantiles", lengths=lengths))
    with paced_server("--ttft-s", "0.002") as url:
        process = bench(url, tmp_path, "--preset", str(recipe), "--workers", workers)
        wait_for(lambda: hanging(url) == 4)
        [rows] = tmp_path.glob("*/requests.jsonl")
        wait_for(lambda: rows.stat().st_size > 0, seconds=30.0)
        time.sleep(1.0)  # what ended before the slots were stuck is given its time to be parsed
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=90)
    kept = read_requests(rows.parent)
    assert {r.ending for r in kept} == {Ending.COMPLETE}
    assert all(len(r.first.chunks) == 2 for r in kept)
    document = json.loads((rows.parent / "result.json").read_text())
    assert document["status"] == "running", "nobody could say that it ended"
    assert [raw["path"] for raw in document["raw"]] == ["requests.jsonl"]
    assert document["workloads"][0]["requests"] == 40


def test_a_server_that_dies_under_way_ends_the_run_with_typed_failures(tmp_path: Path):
    recipe = tmp_path / "r.toml"
    recipe.write_text(RECIPE.format(last="hang_at = 4", kind="fixed", lengths="tokens = 200"))
    with paced_server() as url:
        process = bench(url, tmp_path, "--preset", str(recipe))
        wait_for(lambda: hanging(url) == 4)
    _, err = process.communicate(timeout=90)  # the server is gone
    [folder] = {p.parent for p in tmp_path.glob("*/result.json")}
    endings = {r.ending for r in read_requests(folder)}
    assert Ending.CONNECT_FAILED in endings, err
    assert endings <= {Ending.COMPLETE, Ending.DISCONNECTED, Ending.CONNECT_FAILED}
    assert len(read_requests(folder)) == 40
