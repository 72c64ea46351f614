"""Overlap: the next step is planned while the last one still runs.

Planning needs to know how many tokens each sequence has, not which: so every sequence that the
running step brings to its end is given a placeholder, as if it went on, and the next step is
planned on that. When the logits are there, placeholders give way to the sampled tokens, sequences
that ended are dropped from the plan, and it is launched before anybody is told the news. Guessing
wrong costs a place in one batch, never a bit: which step computes a token does not matter.

Not guessed: the end of a prompt with several choices, which begin only then (the next step is then
planned when they are there). Known: an answer ends at ``max_tokens``.

One thread runs the steps, in order; another, the caller's, owns scheduler, pages and sampling. The
step that runs has its own copy of the block tables, and pages change hands in memory only between
steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from reference_engine.audit import Audit
from reference_engine.batch import BatchSequence
from reference_engine.generation import Generation
from reference_engine.request import TokenEvent
from reference_engine.scheduler import Chunk, Plan, Scheduler
from reference_engine.sequence import Sequence as LiveSequence
from reference_engine.step import StepChunk, describe

PLACEHOLDER = 0
"""Stands for a token that is not sampled yet; no step ever computes it."""


@dataclass(frozen=True, slots=True)
class StepInFlight:
    """A step that runs: its plan, what was asked of it, and the logits to come."""

    plan: Plan
    chunks: tuple[StepChunk, ...]
    wanted: tuple[int, ...]
    t_start_s: float
    logits: Future[Tensor]


class Lookahead:
    """Takes steps so that one runs while the next is planned.

    ``assemble`` describes a chunk for the batch; ``run`` computes the logits of such descriptions,
    on a thread of its own; ``settle_pages`` carries out in memory what plans changed.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        generation: Generation,
        audit: Audit,
        *,
        assemble: Callable[[Chunk], BatchSequence],
        run: Callable[[Sequence[BatchSequence]], Tensor],
        settle_pages: Callable[[], None],
    ) -> None:
        self.in_flight: StepInFlight | None = None
        self._scheduler, self._generation, self._audit = scheduler, generation, audit
        self._assemble, self._run, self._settle_pages = assemble, run, settle_pages
        self._thread = ThreadPoolExecutor(
            1,
            thread_name_prefix="isobatch-step",
            initializer=torch.set_num_threads,
            initargs=(torch.get_num_threads(),),
        )

    def step(self) -> tuple[list[TokenEvent], StepInFlight | None]:
        """Finish the step that runs and launch the next; returns the news and the finished one."""
        if self.in_flight is None:
            self._launch(self._scheduler.plan())
        done, self.in_flight = self.in_flight, None
        if done is None:
            return [], None
        ahead = self._plan_ahead(done)
        events = self._generation.advance(done.plan, done.logits.result(), done.wanted)
        if ahead is not None:
            self._drop_ended(ahead)
        self._launch(ahead if ahead is not None and ahead.chunks else self._scheduler.plan())
        return events, done

    def _plan_ahead(self, running: StepInFlight) -> Plan | None:
        """The plan after the running step, on placeholders; None where nobody can guess."""
        guessed = self._likely_to_go_on(running.plan)
        if guessed is None:
            return None
        for sequence in guessed:
            sequence.tokens.append(PLACEHOLDER)
        plan = self._scheduler.plan()
        self._audit.overlapped_steps += bool(plan.chunks) and not running.logits.done()
        for sequence in guessed:
            sequence.tokens.pop()
        return plan

    def _likely_to_go_on(self, plan: Plan) -> list[LiveSequence] | None:
        """Sequences that the step brings to their end, and that do not surely end with it."""
        guessed = []
        for chunk in plan.chunks:
            sequence = chunk.sequence
            if sequence.finished or not chunk.reaches_end:
                continue
            params = sequence.request.params
            if params.n > 1 and not sequence.output_tokens:
                return None
            if sequence.output_tokens + 1 < params.max_tokens:
                guessed.append(sequence)
        return guessed

    def _drop_ended(self, plan: Plan) -> None:
        """Leave out those that ended after all: on a stop token, with an error."""
        kept = [chunk for chunk in plan.chunks if not chunk.sequence.finished]
        self._audit.overlap_dropped += len(plan.chunks) - len(kept)
        plan.chunks = kept

    def _launch(self, plan: Plan) -> None:
        """Start a step. The one before has ended: pages may change hands."""
        self._settle_pages()
        if not plan.chunks:
            return
        t_start_s = time.monotonic()
        chunks = tuple(describe(chunk) for chunk in plan.chunks)
        sequences = [_with_own_tables(self._assemble(chunk)) for chunk in plan.chunks]
        wanted = tuple(sequence.wants_logits for sequence in sequences)
        logits = self._thread.submit(self._run, sequences)
        self._scheduler.commit(plan)
        self.in_flight = StepInFlight(plan, chunks, wanted, t_start_s, logits)


def _with_own_tables(sequence: BatchSequence) -> BatchSequence:
    return replace(sequence, block_tables=tuple(tuple(t) for t in sequence.block_tables))
