"""Self-calibration."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from harness.cli.app import main
from harness.client import answer_reader
from harness.client.connection import HttpConnection
from harness.load.paced.process import paced_server
from harness.load.selftest import (
    Level,
    Spread,
    best_rate,
    calibrate,
    measure_level,
    run_selftest,
)
from harness.targets.http import HttpTarget


async def level(streams: int) -> Level:
    with paced_server("--ttft-s", "0.01", "--gap-s", "0.002") as url:
        target = HttpTarget(url, model="paced", keep_raw=False)
        measured = await measure_level(target, streams, rounds=2)
        await target.close()
        return measured


async def test_an_error_of_the_client_is_found(monkeypatch: pytest.MonkeyPatch):
    healthy = await level(4)
    honest = HttpConnection.bytes_arrived

    def late(self: HttpConnection, t_s: float, data: bytes) -> None:
        honest(self, t_s + 0.25, data)

    monkeypatch.setattr(HttpConnection, "bytes_arrived", late)
    broken = await level(4)
    assert broken.ttft.p50_s == pytest.approx(0.25 + healthy.ttft.p50_s, abs=0.05)
    assert broken.arrival.p50_s > 0.24
    assert healthy.arrival.p50_s < 0.1
    assert healthy.failed == 0
    assert healthy.events == healthy.requests * 51


@pytest.mark.parametrize("way", ["selftest", "calibration"])
def test_events_are_read_the_quick_way_as_in_a_bench(way: str, monkeypatch: pytest.MonkeyPatch):
    """Raw events kept would send each through a parser that costs more, and overstate the cost."""
    slow = []
    honest = answer_reader.read_document
    monkeypatch.setattr(answer_reader, "read_document", lambda *a: slow.append(1) or honest(*a))
    if way == "selftest":
        run_selftest([2], rounds=2)
    else:
        asyncio.run(calibrate(2))
    requests = 8 + 2 * 2  # the warm-up's too
    assert len(slow) / requests <= 8, "the first, the last and the usage, not all of 51"


def test_spread_is_of_absolute_errors():
    assert Spread.of([-3.0, 1.0, 2.0]) == Spread(2.0, 3.0, 3.0)


def test_the_best_rate_is_that_of_a_level_without_error_or_failure():
    def made(rate: float, error: float, failed: int = 0) -> Level:
        spread = Spread(error, error, error)
        return Level(1, 1, 1, rate, 0.0, spread, spread, spread, 0.0, 0.0, None, None, failed)

    levels = [made(100.0, 0.0001), made(300.0, 0.0002, failed=1), made(200.0, 0.01)]
    assert best_rate(levels) == 100.0
    assert best_rate(levels[1:]) is None


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]):
    main_status(["selftest", "--streams", "2", "--rounds", "1", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert len(document["scenarios"]) == 7
    named = {s["name"]: s["problem"] for s in document["scenarios"]}
    for name in ("4 tokens an event", "error mid-stream", "half-open", "reset mid-stream"):
        assert named[name] is None  # the others need a machine that is not overloaded
    assert [x["streams"] for x in document["levels"]] == [2]


def main_status(arguments: list[str]) -> int:
    try:
        main(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_a_bench_result_carries_its_calibration(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with paced_server("--ttft-s", "0.005", "--gap-s", "0.001") as url:
        flags = ["--requests", "2", "--concurrency", "2", "--no-warmup", "--no-page", "--json"]
        main_status(["bench", url, "--prompts", "9:20", "--out", str(tmp_path), *flags])
    numbers = json.loads(capsys.readouterr().out)["client_health"]["numbers"]
    assert numbers["calibration_ttft_error_p99_s"] > 0
    assert numbers["calibration_cpu_us_per_event"] > 0
