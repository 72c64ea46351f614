"""The report: correctness first, failed requests and invalid clients are never passed over."""

import json
from pathlib import Path

import pytest

from harness.cli import main
from harness.gate.decision import Outcome
from harness.gate.guarded_metric import GuardedMetric
from harness.gate.paired_run import Pair, Replicate
from harness.gate.report import NoiseReport, broken_checks, conclude
from harness.gate.side import Side
from harness.results.document import MetricRow, VerdictRow
from harness.results.run_folder import RunFolder
from harness.verdict import CheckResult, Verdict

TPOT = GuardedMetric("tpot", "p50", 0.05)


def row(value: float | None, metric_id: str = "tpot", statistic: str = "p50") -> MetricRow:
    return {
        "id": metric_id,
        "statistic": statistic,
        "unit": "s",
        "value": value,
        "count": 10,
        "low": None if value is None else value * 0.99,
        "high": None if value is None else value * 1.01,
        "confidence": 0.95,
        "window": "whole",
        "workload_sha256": "0" * 64,
    }


def pairs(
    ratio: float, *, base_failed: int = 0, head_failed: int = 0, invalid: str = ""
) -> list[Pair]:
    return [
        Pair(
            n,
            n % 2 == 0,
            Replicate([row(0.010 * (1 + 0.001 * n))], base_failed),
            Replicate(
                [row(0.010 * (1 + 0.0012 * n) * ratio)], head_failed, (invalid,) if invalid else ()
            ),
        )
        for n in range(6)
    ]


@pytest.mark.parametrize(
    ("ratio", "outcome"), [(1.0, "equivalent"), (1.2, "regression"), (0.8, "better")]
)
def test_the_pairs_decide(ratio: float, outcome: str) -> None:
    """A head as fast, slower, faster."""
    assert conclude(pairs(ratio), [TPOT]).outcome == outcome


def test_a_broken_check_is_a_regression_however_fast() -> None:
    """Correctness needs no statistics."""
    report = conclude(pairs(0.5), [TPOT], broken=("EQV-1",))
    assert report.outcome is Outcome.REGRESSION
    assert "EQV-1" in report.reasons[0]


def test_failed_requests_are_not_passed_over() -> None:
    """On the head: a regression. On the base: there is nothing to hold the head to."""
    assert conclude(pairs(1.0, head_failed=1), [TPOT]).outcome is Outcome.REGRESSION
    assert conclude(pairs(1.0, base_failed=1), [TPOT]).outcome is Outcome.INCONCLUSIVE


def test_a_client_that_could_not_keep_up_proves_nothing() -> None:
    """An invalid replicate makes a good outcome inconclusive."""
    report = conclude(pairs(1.0, invalid="loop lag"), [TPOT])
    assert report.outcome is Outcome.INCONCLUSIVE
    assert "loop lag" in report.reasons[0]


def test_a_metric_that_no_run_has_is_inconclusive() -> None:
    """An undefined p99 cannot pass."""
    report = conclude(pairs(1.0), [TPOT, GuardedMetric("chunk_gap", "p99", 0.15)])
    assert report.outcome is Outcome.INCONCLUSIVE


def test_only_a_change_from_pass_to_fail_breaks() -> None:
    """What failed before, or is new, is not this change's doing."""

    def verdicts(**by_id: str) -> list[VerdictRow]:
        return [
            {
                "check_id": check_id,
                "chapter": "EQV",
                "verdict": verdict,
                "sentence": "",
                "reason": "",
                "evidence": {},
                "failures": [],
                "requests": 1,
                "first_failure_requests": None,
                "duration_s": 0.0,
            }
            for check_id, verdict in by_id.items()
        ]

    base = verdicts(A="pass", B="fail", C="tie-flips", D="pass", E="unsupported")
    head = verdicts(A="fail", B="fail", C="error", D="unsupported", E="fail", F="fail")
    assert broken_checks(base, head) == ("A", "C")


def test_an_a_a_run_names_what_is_too_noisy() -> None:
    """Quiet pairs may be gated on, wild ones not."""
    assert NoiseReport.of(conclude(pairs(1.0), [TPOT])).too_noisy == []
    wild = [
        Pair(
            n, True, Replicate([row(0.01)], 0), Replicate([row(0.01 * (1.5 if n % 2 else 0.7))], 0)
        )
        for n in range(6)
    ]
    noise = NoiseReport.of(conclude(wild, [TPOT]))
    assert noise.too_noisy == ["tpot p50"]
    assert not noise.false_alarm


def test_a_side_is_a_url_or_a_command(tmp_path: Path) -> None:
    """A URL is used as it is; nothing is started for it."""
    side = Side("base", "http://127.0.0.1:1")
    with side.serving(tmp_path / "log") as url:
        assert url == "http://127.0.0.1:1"
    assert not Side("head", "isobatch serve x").is_url


def stored(parent: Path, tpot_s: float, verdict: Verdict) -> str:
    with RunFolder.create(parent, kind="bench", command=["isobatch"]) as run:
        run.add_metrics([row(tpot_s)])
        run.add_verdict(CheckResult("EQV-1", verdict, "holds"))
    return str(run.path / "result.json")


@pytest.mark.parametrize(
    ("tpot_s", "verdict", "status"),
    [
        (0.010, Verdict.PASS, 0),
        (0.020, Verdict.PASS, 2),
        (0.005, Verdict.PASS, 0),
        (0.010, Verdict.FAIL, 1),
    ],
)
def test_stored_runs_are_compared_and_called_no_gate(
    tpot_s: float,
    verdict: Verdict,
    status: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Slower numbers alone are never a regression there; a broken check is."""
    base, head = stored(tmp_path, 0.010, Verdict.PASS), stored(tmp_path, tpot_s, verdict)
    with pytest.raises(SystemExit) as ended:
        main(["gate", base, head, "--metric", "tpot:p50=5%"])
    assert ended.value.code == status
    assert "no paired gate" in capsys.readouterr().out


def test_results_of_other_machines_carry_a_caveat(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What differs between the machines is said."""
    base, head = stored(tmp_path, 0.01, Verdict.PASS), stored(tmp_path, 0.01, Verdict.PASS)
    document = json.loads(Path(head).read_text())
    document["environment"]["cpu_count"] = 999
    Path(head).write_text(json.dumps(document))
    with pytest.raises(SystemExit):
        main(["gate", base, head, "--metric", "tpot:p50=5%"])
    assert "caveat: the client's cpu_count differs" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--base", "http://x"],
        ["--base", "http://x", "--head", "http://x", "--aa"],
        ["one.json"],
    ],
)
def test_a_gate_that_cannot_be_is_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2 and one sentence."""
    with pytest.raises(SystemExit) as ended:
        main(["gate", *arguments])
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
