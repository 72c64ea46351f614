"""Who computes what in the next step.

The algorithm of continuous batching: fill a budget of tokens; every running decode first, one
token each; then prefill chunks, cut to fit; requests are admitted and retired at every step.

When pages run out, the sequence served last gives up its pages and waits again; its tokens, the
generated ones included, are computed anew later. Three rules bound everybody's wait:

1. Order of service is (priority, arrival). Of those who wait nobody is overtaken: if the first does
   not fit, no later one is let in.
2. A running sequence takes pages only from sequences behind it, so the first that runs advances in
   every step, and never loses what it has computed.
3. A request that could not be served alone is refused when it comes, not when it stands first.

So a request waits, at most, for the remaining work of those that run when it comes and the whole
work of those before it in the order of service; nothing behind it adds to that.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from reference_engine.kv_cache import SequencePages
from reference_engine.sequence import Sequence, SequenceState


@dataclass(frozen=True, slots=True)
class Chunk:
    """``count`` tokens of one sequence, from position ``start`` on."""

    sequence: Sequence
    start: int
    count: int

    @property
    def reaches_end(self) -> bool:
        """Whether it computes the last known token, so that the next one can be sampled."""
        return self.start + self.count == len(self.sequence.tokens)


@dataclass(slots=True)
class Plan:
    """One step: chunks in batch order, and who lost their pages to make it possible."""

    chunks: list[Chunk] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    admitted: list[Sequence] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens the step computes."""
        return sum(chunk.count for chunk in self.chunks)


class Scheduler:
    """Holds the live sequences: a heap of those that wait and a sorted list of those that run."""

    def __init__(self, pages: SequencePages, *, token_budget: int, max_num_seqs: int) -> None:
        self.pages = pages
        self.token_budget = token_budget
        self.max_num_seqs = max_num_seqs
        self.running: list[Sequence] = []
        self.preemptions = 0
        self._waiting: list[tuple[tuple[int, int, int], Sequence]] = []
        self._num_waiting = 0

    @property
    def num_waiting(self) -> int:
        """Sequences that wait, preempted ones included."""
        return self._num_waiting

    @property
    def has_work(self) -> bool:
        """Whether any sequence is alive."""
        return bool(self.running) or self._num_waiting > 0

    def waiting(self) -> Iterator[Sequence]:
        """The sequences that wait, in no particular order."""
        return (s for _, s in self._waiting if s.state is SequenceState.WAITING)

    def order(self, sequence: Sequence) -> tuple[int, int, int]:
        """Whoever has the smallest is admitted first."""
        return sequence.key

    def add(self, sequence: Sequence) -> None:
        """Let the sequence wait for its turn."""
        sequence.state = SequenceState.WAITING
        heapq.heappush(self._waiting, (self.order(sequence), sequence))
        self._num_waiting += 1

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Start ``child`` beside a running ``parent``, sharing its pages, if there is a place."""
        if len(self.running) < self.max_num_seqs:
            self.pages.fork(parent, child)
            self._run(child)
        else:
            self.add(child)

    def finish(self, sequence: Sequence) -> None:
        """Retire a sequence, whether it runs or waits, and free its pages."""
        if sequence.state is SequenceState.RUNNING:
            self.running.remove(sequence)
        elif sequence.state is SequenceState.WAITING:
            self._num_waiting -= 1  # it stays in the heap until it comes up
        self.pages.release(sequence)
        sequence.state = SequenceState.FINISHED

    def plan(self) -> Plan:
        """Choose the chunks of the next step and secure their pages."""
        plan = Plan()
        decodes = [s for s in self.running if s.decodes]
        prefills = [s for s in self.running if s.remaining and not s.decodes]
        budget = self._extend(plan, decodes, self.token_budget)
        budget = self._extend(plan, prefills, budget)
        if not plan.preempted:
            self.admit(plan, budget)
        return plan

    def commit(self, plan: Plan) -> None:
        """The step ran: its tokens have keys and values now."""
        for chunk in plan.chunks:
            chunk.sequence.computed += chunk.count
            self.pages.register(chunk.sequence)

    def _extend(self, plan: Plan, sequences: list[Sequence], budget: int) -> int:
        """Give each of these running sequences a chunk while the budget lasts."""
        for sequence in sequences:
            if budget == 0:
                break
            if sequence.state is not SequenceState.RUNNING:
                continue  # preempted a moment ago
            count = min(budget, sequence.remaining)
            while not self.pages.grow(sequence, sequence.computed + count):
                victim = self.running[-1]
                if victim is sequence:
                    break
                budget += self.preempt(plan, victim)
            else:
                plan.chunks.append(Chunk(sequence, sequence.computed, count))
                budget -= count
        return budget

    def preempt(self, plan: Plan, victim: Sequence) -> int:
        """Take the victim's pages; returns the budget that it had in this step already."""
        given = sum(c.count for c in plan.chunks if c.sequence is victim)
        plan.chunks = [c for c in plan.chunks if c.sequence is not victim]
        self.running.remove(victim)
        self.pages.release(victim)
        self.add(victim)
        plan.preempted.append(victim)
        self.preemptions += 1
        return given

    def admit(self, plan: Plan, budget: int) -> None:
        """Move waiting sequences in, in order, while places, budget and pages last.

        Running sequences are left the pages that their known tokens still need and one more to
        grow into, or the newcomer would be preempted at once.
        """
        spare = [0] * len(self.pages.groups)
        for running in self.running:
            spare = self._with_growth(spare, running)
        while budget > 0 and len(self.running) < self.max_num_seqs:
            sequence = self._first_waiting()
            if sequence is None:
                return
            prefix = self.pages.cached_prefix(sequence)
            if not self.pages.fits(sequence, prefix, spare):
                return
            heapq.heappop(self._waiting)
            self._num_waiting -= 1
            self.pages.attach(sequence, prefix)
            self._run(sequence)
            count = min(budget, sequence.remaining)
            self.pages.grow(sequence, sequence.computed + count)
            spare = self._with_growth(spare, sequence)
            plan.admitted.append(sequence)
            plan.chunks.append(Chunk(sequence, sequence.computed, count))
            budget -= count

    def _with_growth(self, spare: list[int], sequence: Sequence) -> list[int]:
        """Add the pages that the sequence may take soon: for its known tokens, and one more."""
        missing = self.pages.missing(sequence)
        return [pages + more + 1 for pages, more in zip(spare, missing, strict=True)]

    def _first_waiting(self) -> Sequence | None:
        while self._waiting:
            sequence = self._waiting[0][1]
            if sequence.state is SequenceState.WAITING:
                return sequence
            heapq.heappop(self._waiting)  # cancelled while it waited
        return None

    def _run(self, sequence: Sequence) -> None:
        sequence.state = SequenceState.RUNNING
        insort(self.running, sequence, key=lambda s: s.key)
