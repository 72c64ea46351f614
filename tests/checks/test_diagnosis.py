"""The guess at a cause names the slip that was made, and keeps silent about what it cannot know."""

from __future__ import annotations

from harness.oracles.diagnosis import diagnose
from harness.oracles.probe import ProbeOracle
from reference_engine.probe import VARIANTS

ORACLE = ProbeOracle(VARIANTS["plain"])
PROMPT = ORACLE.prompt(40, "diagnosis").ids or ()
OTHER = ORACLE.prompt(40, "another").ids or ()
EXPECTED = ORACLE.rule.generate(PROMPT, 16).token_ids
# A place where the answer does not repeat itself, so that there is one right description.
PLACE = next(i for i in range(4, 10) if len({EXPECTED[i - 1], EXPECTED[i], EXPECTED[i + 1]}) == 3)


def _guess(actual: tuple[int, ...]) -> str | None:
    return diagnose(ORACLE.continuation, PROMPT, EXPECTED, actual, [OTHER])


def _goes_on(prefix: int, context: tuple[int, ...]) -> tuple[int, ...]:
    """The right answer for ``prefix`` tokens, then that to ``context``."""
    return EXPECTED[:prefix] + ORACLE.rule.generate(context, 16 - prefix).token_ids


def test_an_answer_cut_short() -> None:
    assert _guess(EXPECTED[:5]) == "the answer stops after 5 of 16 tokens"


def test_a_token_delivered_twice() -> None:
    doubled = (*EXPECTED[:PLACE], EXPECTED[PLACE - 1], *EXPECTED[PLACE:15])
    assert _guess(doubled) == f"token {PLACE - 1} is delivered twice"


def test_a_token_left_out() -> None:
    skipped = (*EXPECTED[:PLACE], *EXPECTED[PLACE + 1 :])
    assert _guess(skipped) == f"token {PLACE} is left out"


def test_an_answer_that_starts_again() -> None:
    restarted = (*EXPECTED[:6], *EXPECTED[:10])
    assert _guess(restarted) == "after 6 tokens the answer starts again from its beginning"


def test_another_request_s_answer() -> None:
    foreign = ORACLE.rule.generate(OTHER, 16).token_ids
    assert "another request's prompt (neighbour 0)" in (_guess(foreign) or "")


def test_a_page_of_a_neighbour() -> None:
    swapped = PROMPT[:16] + OTHER[16:32] + PROMPT[32:]
    assert "tokens 16 to 31 are those of neighbour 0" in (_guess(_goes_on(0, swapped)) or "")


def test_a_missing_last_prompt_token() -> None:
    shorter = PROMPT[:-1] + EXPECTED[:3]
    assert "the last prompt token is missing" in (_guess(_goes_on(3, shorter)) or "")


def test_nonsense_is_not_explained() -> None:
    nonsense = tuple(EXPECTED[-1 - i] for i in range(16))
    assert _guess(nonsense) is None
