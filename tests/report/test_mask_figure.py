"""The picture of the mask shows exactly the visible pairs of the mask it was given."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.report.mask_figure import mask_figure, runs
from harness.report.pictures import step_mask
from harness.report.step import ScheduledTokens, Step, most_telling
from harness.report.theme import INK, STREAMS, VARIABLES, inline_svg, standalone_svg
from tests.report.fixtures import STEPS


@given(st.lists(st.booleans(), max_size=40))
def test_runs_are_the_stretches_of_true(row: list[bool]) -> None:
    """Painting the runs gives the row back."""
    painted = [False] * len(row)
    for start, length in runs(np.array(row, dtype=bool)):
        assert length > 0
        assert not any(painted[start : start + length])
        painted[start : start + length] = [True] * length
    assert painted == row


def test_the_mask_of_a_step_is_block_diagonal_and_causal() -> None:
    """Row by row: the keys of the own request up to the own position, and nothing else."""
    mask = step_mask(STEPS[2], page_size=16)
    assert mask.shape == (16, 48)
    assert mask[0].nonzero()[0].tolist() == list(range(21))
    assert mask[1].nonzero()[0].tolist() == list(range(21, 34))
    assert mask[9].nonzero()[0].tolist() == list(range(21, 42))
    assert mask[10].nonzero()[0].tolist() == [42]
    assert mask[15].nonzero()[0].tolist() == list(range(42, 48))


def test_the_picture_draws_one_rectangle_a_visible_run() -> None:
    """Colour is drawn from the mask itself: a wrong mask gives a different picture."""
    step = STEPS[2]
    mask = step_mask(step, page_size=16)
    names = ["A", "B", "C"]
    right = standalone_svg(mask_figure(step, mask, names), "m")
    leaky = mask.copy()
    leaky[0, 30] = True
    wrong = standalone_svg(mask_figure(step, leaky, names), "m")
    assert wrong.count("<path") == right.count("<path") + 1


def test_a_mask_of_another_shape_is_refused() -> None:
    """A mask that is not this step's cannot be drawn as if it were."""
    with pytest.raises(ValueError, match="16 rows and 48 keys"):
        mask_figure(STEPS[2], np.zeros((3, 48), bool), ["A", "B", "C"])


def test_the_same_picture_every_time_and_in_both_schemes() -> None:
    """No date, no random id; every ink is a variable that both schemes define."""
    step = STEPS[1]
    mask = step_mask(step, page_size=16)
    first = standalone_svg(mask_figure(step, mask, ["A", "B"], page_size=16), "m")
    again = standalone_svg(mask_figure(step, mask, ["A", "B"], page_size=16), "m")
    assert first == again
    assert not [ink for ink in (INK, *STREAMS) if ink in first]
    light, dark = re.findall(r"svg\{(.*?)\}", first)
    for used in set(re.findall(r"var\((--[\w-]+)\)", first)):
        assert used in VARIABLES.values()
        assert f"{used}:#" in light
        assert f"{used}:#" in dark


def test_a_description_cannot_break_out_of_its_attribute() -> None:
    """The text a screen reader says is escaped."""
    figure = mask_figure(STEPS[1], step_mask(STEPS[1], 16), ["A", "B"])
    svg = inline_svg(figure, "m", '"><script>')
    assert "<script>" not in svg


def test_the_most_telling_step_mixes_kinds_and_fits() -> None:
    """Decode beside a chunk with cached keys before it; nothing too big for a picture."""
    huge = Step(9, 0, 1, (ScheduledTokens("z", "prefill", 0, 500),))
    assert most_telling([*STEPS, huge]) is STEPS[2]
    assert most_telling([huge]) is None
