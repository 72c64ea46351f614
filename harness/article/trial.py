"""One trial: requests given to a fresh engine in process, each step timed.

Times are processor time of this process, not wall time: what else the machine does then matters
little. The engine runs in the caller's thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from harness.report.step import ScheduledTokens, Step
from reference_engine.engine import Engine, EngineConfig
from reference_engine.model import LoadedModel
from reference_engine.request import Request, SamplingParams
from reference_engine.step import StepRecord


@dataclass(frozen=True, slots=True)
class TimedStep:
    """What one step computed, and the processor seconds it took."""

    record: StepRecord
    cpu_s: float
    finished: tuple[str, ...]


@dataclass(slots=True)
class Trial:
    """All steps of one run, and each request's answer."""

    steps: list[TimedStep] = field(default_factory=list)
    answers: dict[str, list[int]] = field(default_factory=dict)

    @property
    def cpu_s(self) -> float:
        """Processor seconds of all steps."""
        return sum(step.cpu_s for step in self.steps)

    @property
    def rows(self) -> int:
        """Tokens computed in all steps."""
        return sum(step.record.num_tokens for step in self.steps)


def request(key: str, prompt_tokens: int, output_tokens: int, model: LoadedModel) -> Request:
    """A greedy request of exactly that many tokens; the key decides the prompt's content."""
    rng = Random(key)
    first = [] if model.bos_id is None else [model.bos_id]
    special = {*model.eos_ids, model.bos_id}
    usual = [i for i in range(min(model.vocab_size, 200)) if i > 3 and i not in special]
    ids = (*first, *rng.choices(usual, k=prompt_tokens - len(first)))
    return Request(key, ids, SamplingParams(max_tokens=output_tokens, ignore_eos=True))


def run(
    model: LoadedModel,
    config: EngineConfig,
    requests: Sequence[Request],
    *,
    refill: Callable[[Engine, int, tuple[str, ...]], None] = lambda _engine, _step, _done: None,
) -> Trial:
    """Serve ``requests``, all submitted at once. ``refill`` is called after every step with the
    engine, the number of steps so far and the ids that just finished; it may submit more."""
    engine = Engine(model, config)
    trial = Trial()
    for one in requests:
        engine.submit(one)
    while engine.has_work:
        started_s = time.process_time()
        events = engine.step()
        cpu_s = time.process_time() - started_s
        done = tuple(e.request_id for e in events if e.finish_reason is not None)
        for event in events:
            if event.token_id is not None:
                trial.answers.setdefault(event.request_id, []).append(event.token_id)
        if engine.last_step is not None:
            trial.steps.append(TimedStep(engine.last_step, cpu_s, done))
        refill(engine, len(trial.steps), done)
    return trial


def drawn(trial: Trial) -> list[Step]:
    """The steps as the pictures take them, times replaced by processor time from 0 on."""
    steps, t_s = [], 0.0
    for timed in trial.steps:
        chunks = tuple(
            ScheduledTokens(c.request_id, c.kind.value, c.start, c.count, c.choice)
            for c in timed.record.chunks
        )
        steps.append(Step(timed.record.index, t_s, t_s + timed.cpu_s, chunks))
        t_s += timed.cpu_s
    return steps
