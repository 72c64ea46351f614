"""A load is judged answer by answer; what the oracle cannot know is not counted as right."""

import asyncio

import pytest

from harness.judged_load import BackgroundLoad, OraclePrompts, judged
from harness.oracles.probe import ProbeOracle
from harness.transcript import ChoiceTranscript, Ending, RequestTranscript, TokenChunk, Transcript
from reference_engine.probe import VARIANTS
from workloads.workload import Workload, WorkloadRequest

ORACLE = ProbeOracle(VARIANTS["plain"])


def workload_of(number: int) -> Workload:
    prompts = OraclePrompts(ORACLE)
    return Workload(
        tuple(
            WorkloadRequest(
                key, prompt_ids=prompts.prompt(number, i, 5 + i), params={"max_tokens": 4}
            )
            for i, key in enumerate("abc")
        )
    )


def answer(request: WorkloadRequest, *, wrong: bool = False) -> RequestTranscript:
    assert request.prompt_ids is not None
    ids = list(ORACLE.rule.generate(request.prompt_ids, 4).token_ids)
    if wrong:
        ids[2] += 1
    chunks = [TokenChunk(0.1 * i, token_ids=(token,), tokens=1) for i, token in enumerate(ids)]
    choice = ChoiceTranscript(chunks, ["length"])
    return RequestTranscript(request.key, Ending.COMPLETE, 0.0, choices={0: choice})


class Answering:
    """A target that knows the rule and breaks it for the requests named ``wrong``."""

    name = "fake"

    def __init__(self, wrong: str = "", lost: str = "") -> None:
        self.wrong, self.lost = wrong, lost
        self.closed = False

    async def run(self, workload: Workload) -> Transcript:
        await asyncio.sleep(0)
        return Transcript(
            {
                r.key: RequestTranscript(r.key, Ending.TIMEOUT, 0.0, error="no token")
                if r.key in self.lost
                else answer(r, wrong=r.key in self.wrong)
                for r in workload.requests
            }
        )

    async def metrics(self) -> dict[str, float]:
        return {}

    async def close(self) -> None:
        self.closed = True


async def test_every_answer_is_counted_once() -> None:
    """Exact, wrong from a named token on, or never come."""
    workload = workload_of(0)
    load = await judged(workload, await Answering(wrong="b", lost="c").run(workload), ORACLE)
    assert (load.exact, load.answers, load.all_exact) == (1, 3, False)
    ((request, judgement),) = load.wrong
    assert (request.key, judgement.first_difference) == ("b", 2)
    assert load.failed == ["c: timeout no token"]


async def test_an_answer_that_is_missing_is_a_failure() -> None:
    """A target that forgets a request does not pass."""
    load = await judged(workload_of(0), Transcript(), ORACLE)
    assert len(load.failed) == 3


async def test_a_load_of_unpredictable_answers_is_not_all_exact() -> None:
    """Nothing judged is not everything right."""
    request = WorkloadRequest("a", messages=({"role": "user", "content": "hi"},))
    workload = Workload((request,))
    transcript = Transcript({"a": RequestTranscript("a", Ending.COMPLETE, 0.0)})
    load = await judged(workload, transcript, ORACLE)
    assert load.answers == 0
    assert not load.all_exact


def test_the_background_load_goes_on_until_the_block_ends() -> None:
    """Rounds follow each other, their answers add up, and the target is closed."""
    target = Answering(wrong="b")
    with BackgroundLoad(lambda: target, workload_of, ORACLE) as background:
        while background.rounds < 3:
            pass
    assert background.outcome.answers == 3 * background.rounds
    assert len(background.outcome.wrong) == background.rounds
    assert target.closed


def test_an_error_in_the_background_is_raised_at_the_end() -> None:
    """A broken load cannot pass unseen."""

    def broken(number: int) -> Workload:
        raise RuntimeError("no workload")

    with (
        pytest.raises(RuntimeError, match="no workload"),
        BackgroundLoad(Answering, broken, ORACLE),
    ):
        pass
