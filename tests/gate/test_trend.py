"""A trend: the run where the level changed, and nothing in plain noise."""

import json
from pathlib import Path

import numpy as np
import pytest

from harness.cli import main
from harness.gate.guarded_metric import GuardedMetric
from harness.gate.trend import Point, changes, series
from harness.results import read_result
from tests.leaderboard.fixtures import bench_run

TPOT = GuardedMetric("tpot", "p50", 0.05)


def points(values: list[float]) -> list[Point]:
    return [Point(f"run-{i}", f"2026-01-{i + 1:02d}", "", v) for i, v in enumerate(values)]


def noisy(level: float, count: int, seed: int) -> list[float]:
    return list(level * np.exp(np.random.default_rng(seed).normal(0, 0.01, count)))


@pytest.mark.parametrize(("after", "slowdown"), [(0.0115, 0.15), (0.0085, -0.15)])
def test_the_run_of_the_change_is_named(after: float, slowdown: float) -> None:
    """Slower or faster, at the run where it happened, by how much."""
    (change,) = changes(points(noisy(0.010, 12, 1) + noisy(after, 9, 2)), TPOT)
    assert change.first.run_id == "run-12"
    assert change.slowdown == pytest.approx(slowdown, abs=0.02)


def test_noise_alone_is_no_trend() -> None:
    """100 series without a change: at most one in twenty says anything."""
    alarms = sum(bool(changes(points(noisy(0.01, 20, seed)), TPOT)) for seed in range(100))
    assert alarms <= 5


def test_a_change_within_delta_and_a_short_series_say_nothing() -> None:
    """Two per cent are not five, and seven runs are no trend."""
    assert changes(points(noisy(0.010, 12, 1) + noisy(0.0102, 12, 2)), TPOT) == []
    assert changes(points([0.01] * 4 + [0.02] * 3), TPOT) == []


def test_series_do_not_mix_servers_or_machines(tmp_path: Path) -> None:
    """Another model or machine is another series; an unfinished run is in none."""
    documents = [read_result(bench_run(tmp_path, "alpha", "1", 100, 0.01)) for _ in range(3)]
    documents.append(read_result(bench_run(tmp_path, "beta", "1", 100, 0.01)))
    documents[1]["environment"]["cpu_model"] = "another"
    documents[2]["status"] = "crashed"
    found = series(documents, TPOT)
    assert [len(p) for p in found.values()] == [1, 1, 1]


def test_the_command_finds_a_slowdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 1 when the latest change is for the worse, 2 when there is too little."""
    for number, tpot_s in enumerate(noisy(0.010, 6, 3) + noisy(0.013, 6, 4)):
        folder = bench_run(tmp_path, "alpha", "1", 100, tpot_s)
        document = json.loads((folder / "result.json").read_text())
        document["started_at"] = f"2026-01-{number + 1:02d}T00:00:00Z"
        (folder / "result.json").write_text(json.dumps(document))
    with pytest.raises(SystemExit) as ended:
        main(["trend", str(tmp_path), "--metric", "tpot:p50=5%"])
    assert ended.value.code == 1
    out = capsys.readouterr().out
    assert "1 changes" in out
    assert "2026-01-07" in out
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit) as ended:
        main(["trend", str(tmp_path / "empty")])
    assert ended.value.code == 2
