"""The proof by counting: false alarms at A/A, and the power to see real slowdowns.

10,000 pairs a scenario, as gates of ten pairs. The noise of one measurement (1% of its own, and in
the rough scenario a spike of a fifth in one of twenty) is what one job on one machine shows.
"""

import pytest

from harness.cli import main
from harness.gate.decision import Outcome
from harness.gate.guarded_metric import GuardedMetric
from harness.gate.simulation import NOISES, Noise, simulate

PAIRS, GATES = 10, 1000
QUIET, ROUGH = NOISES.values()
ONE = (GuardedMetric("tpot", "p50", 0.05),)


@pytest.mark.parametrize("noise", [QUIET, ROUGH], ids=["quiet", "rough"])
def test_no_false_alarm_at_a_a(noise: Noise) -> None:
    """Identical sides: at most 5% regressions; with delta above zero it is far fewer."""
    rates = simulate(slowdown=0.0, noise=noise, pairs=PAIRS, gates=GATES, seed=1)
    assert rates[Outcome.REGRESSION] <= 0.05


@pytest.mark.parametrize("noise", [QUIET, ROUGH], ids=["quiet", "rough"])
def test_false_alarms_at_the_boundary(noise: Noise) -> None:
    """The hardest case: exactly delta slower is still no regression, in at least 95 of 100."""
    rates = simulate(slowdown=0.05, noise=noise, pairs=PAIRS, gates=GATES, seed=2, metrics=ONE)
    assert rates[Outcome.REGRESSION] <= 0.05 + 0.02


def test_quiet_a_a_is_decided() -> None:
    """Without rough neighbours an A/A gate says equivalent, not inconclusive."""
    rates = simulate(slowdown=0.0, noise=QUIET, pairs=PAIRS, gates=GATES, seed=3)
    assert rates[Outcome.EQUIVALENT] >= 0.95


@pytest.mark.parametrize(
    ("slowdown", "power"), [(0.03, 0.0), (0.05, 0.70), (0.10, 0.999), (0.20, 0.999)]
)
def test_power_when_quiet(slowdown: float, power: float) -> None:
    """3% is what is allowed; 5% is seen (on throughput's 3%) mostly, 10% and 20% always."""
    rates = simulate(slowdown=slowdown, noise=QUIET, pairs=PAIRS, gates=GATES, seed=4)
    assert rates[Outcome.REGRESSION] >= power


@pytest.mark.parametrize(("slowdown", "power"), [(0.10, 0.25), (0.20, 0.9)])
def test_power_when_rough(slowdown: float, power: float) -> None:
    """Spikes cost power, never false alarms."""
    rates = simulate(slowdown=slowdown, noise=ROUGH, pairs=PAIRS, gates=GATES, seed=5)
    assert rates[Outcome.REGRESSION] >= power


def test_a_regression_is_never_called_better() -> None:
    """At 10% no simulated gate says equivalent or better."""
    rates = simulate(slowdown=0.10, noise=ROUGH, pairs=PAIRS, gates=GATES, seed=6)
    assert rates[Outcome.EQUIVALENT] + rates[Outcome.BETTER] == 0


def test_the_command_states_the_power(capsys: pytest.CaptureFixture[str]) -> None:
    """A table of outcome shares, one line a noise and slowdown."""
    with pytest.raises(SystemExit) as ended:
        main(["gate", "--simulate", "--pairs", "50"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "regression" in out
    assert out.count("20%") >= len(NOISES)
