"""A load whose every answer is judged: fast and wrong does not count as fast."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from harness.oracles.oracle import Agreement, Judgement, NotPredictable, Oracle
from harness.targets.target import Target
from harness.transcript import Ending, RequestTranscript, Transcript
from workloads.workload import Workload, WorkloadRequest


@dataclass(frozen=True, slots=True)
class OraclePrompts:
    """Prompts as token ids that the oracle can answer for."""

    oracle: Oracle

    def prompt(self, seed: int, number: int, tokens: int) -> tuple[int, ...]:
        """Prompt ``number``, of exactly ``tokens`` tokens. Raises ValueError without ids."""
        ids = self.oracle.prompt(tokens, f"{seed}/{number}").ids
        if ids is None:
            raise ValueError(f"the {self.oracle.name} oracle knows no token ids")
        return ids


@dataclass(slots=True)
class JudgedLoad:
    """What a load came to: how many answers were exact, which were wrong, which never came."""

    exact: int = 0
    wrong: list[tuple[WorkloadRequest, Judgement]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def answers(self) -> int:
        """Answers that were due."""
        return self.exact + len(self.wrong) + len(self.failed)

    @property
    def all_exact(self) -> bool:
        """Whether every answer came and was right, and there was one."""
        return self.exact > 0 and not self.wrong and not self.failed

    def add(self, other: JudgedLoad) -> None:
        """Count another load in."""
        self.exact += other.exact
        self.wrong += other.wrong
        self.failed += other.failed


async def judged(workload: Workload, answers: Transcript, oracle: Oracle) -> JudgedLoad:
    """Judge each answer. A request whose answer the oracle cannot know is not counted."""
    load = JudgedLoad()
    for request in workload.requests:
        answer = answers.requests.get(request.key)
        if answer is None:
            load.failed.append(f"{request.key}: no answer")
        elif answer.ending not in (Ending.COMPLETE, Ending.CANCELLED):
            load.failed.append(f"{request.key}: {answer.ending.value} {answer.error or ''}".strip())
        else:
            await _judge(load, request, answer, oracle)
    return load


async def _judge(
    load: JudgedLoad, request: WorkloadRequest, answer: RequestTranscript, oracle: Oracle
) -> None:
    try:
        judgement = await oracle.judge(request, answer)
    except NotPredictable:
        return
    if judgement.agreement is Agreement.EXACT:
        load.exact += 1
    else:
        load.wrong.append((request, judgement))


class BackgroundLoad:
    """Keeps a server busy from a thread of its own while the block runs, and judges the answers.

    ``workload_of(round)`` makes each round's workload, so that no two rounds ask the same. What
    the rounds came to (one at least) is in ``outcome``; an exception in the thread is raised when
    the block ends.
    """

    def __init__(
        self,
        open_target: Callable[[], Target],
        workload_of: Callable[[int], Workload],
        oracle: Oracle,
    ) -> None:
        self.outcome = JudgedLoad()
        self.rounds = 0
        self._open_target = open_target
        self._workload_of = workload_of
        self._oracle = oracle
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="background load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        if error is None and self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            asyncio.run(self._rounds())
        except BaseException as error:
            self._error = error

    async def _rounds(self) -> None:
        target = self._open_target()
        try:
            while not self.rounds or not self._stop.is_set():
                workload = self._workload_of(self.rounds)
                answers = await target.run(workload)
                self.outcome.add(await judged(workload, answers, self._oracle))
                self.rounds += 1
        finally:
            await target.close()
