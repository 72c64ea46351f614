"""Live progress: what it shows, where, and that a run gives it gaps to show."""

from __future__ import annotations

import asyncio

import pytest

from harness.client import workload_run
from harness.load import progress as module
from harness.load.paced.process import paced_server
from harness.load.progress import Progress, Recent
from harness.targets.http import HttpTarget
from harness.transcript import ChoiceTranscript, Ending, RequestTranscript, TokenChunk, Usage
from workloads.presets import load_preset
from workloads.prompts import TokenAlphabet


def answer(tokens: int, gap_s: float) -> RequestTranscript:
    chunks = [TokenChunk(0.050 + i * gap_s, "x") for i in range(tokens)]
    request = RequestTranscript("a", Ending.COMPLETE, 0.0, usage=Usage(3, tokens, None))
    request.choices[0] = ChoiceTranscript(chunks=chunks)
    return request


def test_medians_and_throughput_of_what_ended():
    recent = Recent()
    assert recent.note() == ""
    for t_s in (1.0, 2.0, 3.0):
        recent.add(answer(11, 0.020), t_s)
    assert recent.note() == "TTFT p50 50.0 ms, TPOT p50 20.00 ms, about 11 tokens/s"


def test_without_a_terminal_it_is_plain_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(module, "_LINE_EVERY_S", 0.0)
    with Progress(2) as progress, Progress(2, quiet=True) as silent:
        progress.ended(answer(11, 0.020))
        silent.ended(answer(11, 0.020))
    assert capsys.readouterr().err == "1/2 TTFT p50 50.0 ms, TPOT p50 20.00 ms\n"


def test_a_run_parses_a_sample_as_it_goes_and_all_in_the_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workload_run, "SAMPLE_EVERY_S", 0.0)
    recipe = load_preset("paced").resized(requests=4, concurrency=2)
    workload = recipe.build(TokenAlphabet(tuple(range(100, 200))), seed=0)
    lengths = []

    async def run(url: str):
        target = HttpTarget(url, keep_raw=False)
        try:
            return await target.run(workload, on_end=lambda r: lengths.append(len(r.first.chunks)))
        finally:
            await target.close()

    with paced_server("--ttft-s", "0.005", "--gap-s", "0.001") as url:
        transcript = asyncio.run(run(url))
    whole = [len(r.first.chunks) for r in transcript.requests.values()]
    assert lengths == whole == [51] * 4
    assert all(r.ending is Ending.COMPLETE for r in transcript.requests.values())
