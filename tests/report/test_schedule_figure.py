"""Lanes of the timeline: chunks stay apart, decodes of successive steps join."""

import pytest

from harness.report.distribution_figure import distribution_figure
from harness.report.schedule_figure import Bar, lanes, schedule_figure
from harness.report.step import ScheduledTokens, Step
from harness.report.theme import inline_svg
from harness.report.throughput_figure import throughput_figure
from tests.report.fixtures import STEPS


def test_lanes_follow_the_steps() -> None:
    """Request a: two prefill chunks, then two decodes as one bar."""
    found = lanes(STEPS)
    assert list(found) == ["x-a", "x-b", "x-c"]
    assert found["x-a"] == [
        Bar("prefill", 10.0, 10.1, 16),
        Bar("prefill", 10.1, 10.2, 4),
        Bar("decode", 10.2, 10.35, 2),
    ]


def test_a_step_left_out_ends_a_decode_bar() -> None:
    """A preempted stream shows its gap."""
    one = (ScheduledTokens("a", "decode", 5, 1),)
    other = (ScheduledTokens("b", "decode", 5, 1),)
    steps = [Step(i, i, i + 1, s) for i, s in enumerate((one, other, one))]
    assert [bar.tokens for bar in lanes(steps)["a"]] == [1, 1]


def test_labels_stand_beside_the_lanes() -> None:
    """Known requests carry their key, unknown ones their id."""
    figure = schedule_figure(STEPS, labels={"x-a": "first"}, token_budget=16)
    svg = inline_svg(figure, "s", "timeline")
    for text in (">first<", ">x-b<", ">token budget 16<"):
        assert text in svg


def test_nothing_to_draw_is_said() -> None:
    """Empty input is an error with a sentence, not an empty picture."""
    with pytest.raises(ValueError, match="no steps"):
        schedule_figure([], labels={})
    with pytest.raises(ValueError, match="sets of samples"):
        distribution_figure({"ttft": []}, axis_label="ms")
    with pytest.raises(ValueError, match="no token arrived"):
        throughput_figure([], [])
