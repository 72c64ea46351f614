"""Standings: the latest run counts, and numbers stand beside the verdicts of the same server."""

import json
from pathlib import Path

import pytest

from harness.leaderboard.pareto_figure import frontier, pareto_figure
from harness.leaderboard.standings import read_standings
from tests.leaderboard.fixtures import bench_run, check_run, make_results


def test_servers_are_ranked_by_what_fails(tmp_path: Path) -> None:
    """Fewest failures first, then most passes; cells count every verdict."""
    standings = read_standings(make_results(tmp_path))
    assert [row.key.name for row in standings.servers] == ["alpha", "beta"]
    assert standings.chapters == ("EQV", "ISO", "LEN", "STR")
    alpha, beta = standings.servers
    assert alpha.cells["LEN"].counts == {"pass": 2, "unsupported": 1}
    assert alpha.cells["EQV"].tone == "good"
    assert beta.cells["EQV"].tone == "bad"
    assert beta.cells["EQV"].link.endswith("#EQV-2")
    assert [v["check_id"] for v in beta.failures] == ["EQV-2", "STR-1"]


def test_numbers_stand_with_the_verdict_of_the_same_server(tmp_path: Path) -> None:
    """Passed, failed or never checked; the fastest first."""
    rows = read_standings(make_results(tmp_path)).performance
    assert [(r.key.name, r.standing) for r in rows] == [
        ("beta", "failed"),
        ("alpha", "passed"),
        ("gamma", "unchecked"),
    ]
    assert rows[1].stream_rate == pytest.approx(20.0)
    assert rows[2].stream_rate is None


def test_another_version_is_another_server(tmp_path: Path) -> None:
    """Version 2 does not inherit the verdicts of version 1."""
    check_run(tmp_path, "alpha", "1.0")
    bench_run(tmp_path, "alpha", "2.0", 100.0, 0.01)
    (row,) = read_standings(tmp_path).performance
    assert row.standing == "unchecked"


def test_the_latest_conformance_run_counts(tmp_path: Path) -> None:
    """An older failure does not stay for ever, and stays reachable."""
    old = check_run(tmp_path, "alpha", "1.0", failing=("EQV-1",))
    document = json.loads((old / "result.json").read_text())
    document["started_at"] = "2020-01-01T00:00:00.000Z"
    (old / "result.json").write_text(json.dumps(document))
    check_run(tmp_path, "alpha", "1.0")
    (row,) = read_standings(tmp_path).servers
    assert row.failures == []
    assert [run.folder for run in row.older] == [old]


def test_a_run_of_some_checks_hides_no_other_verdict(tmp_path: Path) -> None:
    """A long suite is run in pieces: each check shows its latest verdict and links to it."""
    old = check_run(tmp_path, "alpha", "1.0", failing=("EQV-1", "EQV-2"))
    new = check_run(tmp_path, "alpha", "1.0")
    document = json.loads((new / "result.json").read_text())
    document["started_at"] = "2999-01-01T00:00:00.000Z"
    document["verdicts"] = [v for v in document["verdicts"] if v["check_id"] == "EQV-1"]
    (new / "result.json").write_text(json.dumps(document))
    (row,) = read_standings(tmp_path).servers
    assert [v["check_id"] for v in row.failures] == ["EQV-2"]
    assert row.link("EQV-1") == f"runs/{new.name}/index.html#EQV-1"
    assert row.link("EQV-2") == row.cells["EQV"].link == f"runs/{old.name}/index.html#EQV-2"
    assert sum(row.cells["EQV"].counts.values()) == 3


def test_what_is_no_result_is_named(tmp_path: Path) -> None:
    """A broken file is refused with its reason and hides nothing else."""
    check_run(tmp_path, "alpha", "1.0")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "result.json").write_text("{}")
    standings = read_standings(tmp_path)
    assert len(standings.servers) == 1
    assert "bad/result.json" in standings.refused[0]


def test_the_frontier_is_what_nothing_beats() -> None:
    """Sorted, without the points another beats on both axes."""
    points = [(1.0, 5.0), (2.0, 4.0), (1.5, 3.0), (3.0, 1.0), (0.5, 5.0), (2.0, 2.0)]
    assert frontier(points) == [(1.0, 5.0), (2.0, 4.0), (3.0, 1.0)]
    assert frontier([]) == []


def test_a_plot_of_nothing_is_refused() -> None:
    """No empty axes that look like a result."""
    with pytest.raises(ValueError, match="no run"):
        pareto_figure([])
