"""A state machine over the scheduler and the page pools: the invariants hold after every step.

No model: a step is committed with made-up tokens, as the engine would with sampled ones.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from reference_engine.kv_cache import SequencePages
from reference_engine.page_group import GroupConfig, PageAction, PageNews
from reference_engine.page_pool import NULL_PAGE
from reference_engine.request import Request, SamplingParams
from reference_engine.scheduler import Plan, Scheduler
from reference_engine.sequence import Sequence, SequenceState

SHARED = tuple(range(40))

ARRIVALS = st.tuples(
    st.integers(1, 30),  # prompt tokens
    st.integers(0, 30),  # of which are shared with everybody
    st.sampled_from([1, 2, 12, 20]),  # tokens to generate
    st.sampled_from([0, 0, 0, 1, -1]),  # priority
)


class SchedulerMachine(RuleBasedStateMachine):
    """Requests arrive, run, fork, are cancelled and end, on pools that are often too small."""

    happened: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.live: list[Sequence] = []
        self.limit: dict[Sequence, int] = {}
        self.steps_since_progress: Counter[Sequence] = Counter()
        self.arrivals = 0

    @initialize(
        page_size=st.sampled_from([1, 4, 8]),
        pages=st.integers(8, 40),
        window=st.sampled_from([None, 1, 6, 16]),
        hybrid=st.booleans(),
        budget=st.sampled_from([1, 5, 16, 64]),
        places=st.integers(1, 6),
    )
    def build(
        self,
        page_size: int,
        pages: int,
        window: int | None,
        hybrid: bool,
        budget: int,
        places: int,
    ) -> None:
        groups = [GroupConfig(pages, window)]
        if hybrid and window is not None:
            groups.append(GroupConfig(pages))
        self.pages = SequencePages(groups, page_size, chunk_tokens=budget)
        self.scheduler = Scheduler(self.pages, token_budget=budget, max_num_seqs=places)
        self.budget, self.places = budget, places

    @rule(arrivals=st.lists(ARRIVALS, min_size=1, max_size=4))
    def submit(self, arrivals: list[tuple[int, int, int, int]]) -> None:
        for prompt, shared, tokens, priority in arrivals:
            own = random.Random(prompt * 100 + shared)
            ids = (*SHARED[:shared], *(own.randrange(100) for _ in range(prompt)))[:prompt]
            if not self.pages.can_ever_hold(len(ids) + tokens - 1):
                continue  # the engine refuses these
            params = SamplingParams(max_tokens=tokens)
            request = Request(str(self.arrivals), ids, params, None, priority)
            sequence = Sequence(request, 0, self.arrivals, list(ids))
            self.arrivals += 1
            self._track(sequence, tokens)
            self.scheduler.add(sequence)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self._retire(data.draw(st.sampled_from(self.live)))

    @precondition(lambda self: self.live)
    @rule(count=st.integers(1, 8), fork=st.booleans())
    def step(self, count: int, fork: bool) -> None:
        for _ in range(count):
            if self.live:
                self._step_once(fork)

    @precondition(lambda self: self.live)
    @rule()
    def drain(self) -> None:
        """Everybody ends within a bound: the work of all, computed again for each preemption."""
        work = sum(len(s.tokens) + self.limit[s] for s in self.live)
        bound = 2 * work * (1 + len(self.live))
        for steps in range(bound):
            if not self.live:
                return
            assert steps < bound, f"{len(self.live)} requests still wait after {bound} steps"
            self._step_once(fork=False)
        assert not self.live, f"{len(self.live)} requests never ended"

    def _step_once(self, fork: bool) -> None:
        waiting_before = sorted(
            (s for s in self.live if s.state is SequenceState.WAITING), key=lambda s: s.key
        )
        plan = self.scheduler.plan()
        self._note(plan, self.pages.news())
        self._check_plan(plan, waiting_before)
        ended = [c.sequence for c in plan.chunks if c.reaches_end]
        self.scheduler.commit(plan)
        for sequence in ended:
            self._sample(sequence, fork)

    def _note(self, plan: Plan, news: list[PageNews]) -> None:
        happened = self.happened
        happened["preempted"] += len(plan.preempted)
        happened["chunked"] += sum(not chunk.reaches_end for chunk in plan.chunks)
        happened["hit"] += self.pages.prefix_hit_tokens
        happened["copied"] += sum(n.action is PageAction.COPY for n in news)
        happened["evicted"] = happened["evicted"] + sum(g.pool.evictions for g in self.pages.groups)
        happened["slid"] += sum(
            NULL_PAGE in table for c in plan.chunks for table in c.sequence.block_tables
        )
        happened["waited in line"] += self.scheduler.num_waiting
        for name in [name for name, count in happened.items() if not count]:
            del happened[name]

    def _check_plan(self, plan: Plan, waiting_before: list[Sequence]) -> None:
        assert plan.chunks, "live sequences, but nothing was planned"
        assert plan.num_tokens <= self.budget, "the budget is exceeded"
        running = [s for s in self.live if s not in waiting_before]
        first = min(running or waiting_before, key=lambda s: s.key)
        chosen = {chunk.sequence for chunk in plan.chunks}
        decodes = [c.sequence.decodes for c in plan.chunks]
        assert decodes == sorted(decodes, reverse=True) or plan.admitted, "prefill before decode"
        if self.budget > len(self.live):
            assert first in chosen, "the first in order of service does not advance"
        admitted = [s for s in waiting_before if s in plan.admitted]
        assert admitted == waiting_before[: len(admitted)], "somebody was overtaken"
        for chunk in plan.chunks:
            sequence = chunk.sequence
            assert chunk.start == sequence.computed
            assert 1 <= chunk.count <= sequence.remaining
            for group, table in zip(self.pages.groups, sequence.block_tables, strict=True):
                needed = range(
                    group.first_needed(chunk.start),
                    group.pages_for(chunk.start + chunk.count),
                )
                assert all(table[i] != NULL_PAGE for i in needed), "a needed page is missing"
                written = range(chunk.start // group.page_size, needed.stop)
                for index in written:
                    shared = group.pool.references(table[index])
                    assert shared == 1, f"page {table[index]} is written by one of {shared} owners"

    def _sample(self, sequence: Sequence, fork: bool) -> None:
        if fork and sequence.output_tokens == 0:
            child = Sequence(sequence.request, 1, sequence.arrival, list(sequence.tokens))
            self._track(child, self.limit[sequence])
            self.scheduler.fork(sequence, child)
            self._append(child, 101)
        self._append(sequence, 100)

    def _append(self, sequence: Sequence, token: int) -> None:
        sequence.tokens.append(token)
        if sequence.output_tokens >= self.limit[sequence]:
            self._retire(sequence)

    def _track(self, sequence: Sequence, tokens: int) -> None:
        self.live.append(sequence)
        self.limit[sequence] = tokens

    def _retire(self, sequence: Sequence) -> None:
        self.live.remove(sequence)
        self.scheduler.finish(sequence)

    @invariant()
    def pages_balance(self) -> None:
        """Free, cached and used pages make up the pool, and references are block table entries."""
        if not hasattr(self, "pages"):
            return
        for index, group in enumerate(self.pages.groups):
            pool = group.pool
            held = Counter(
                page for s in self.live for page in (s.block_tables or [[]] * 9)[index] if page
            )
            assert pool.free + pool.cached + pool.used == pool.num_pages - 1
            assert pool.used == len(held), f"{pool.used} pages used, {len(held)} in block tables"
            for page, owners in held.items():
                assert pool.references(page) == owners

    @invariant()
    def shared_pages_hold_equal_tokens(self) -> None:
        """A page in two block tables stands at one place and covers the same tokens in both."""
        if not hasattr(self, "pages"):
            return
        for index, group in enumerate(self.pages.groups):
            seen: dict[int, tuple[int, tuple[int, ...]]] = {}
            for sequence in self.live:
                for place, page in enumerate((sequence.block_tables or [[]] * 9)[index]):
                    end = min((place + 1) * group.page_size, sequence.computed)
                    covered = (place, tuple(sequence.tokens[:end]))
                    if page != NULL_PAGE:
                        assert seen.setdefault(page, covered) == covered

    @invariant()
    def places_are_limited(self) -> None:
        """No more sequences run than there are places, and none is lost."""
        if not hasattr(self, "pages"):
            return
        assert len(self.scheduler.running) <= self.places
        assert len(self.scheduler.running) + self.scheduler.num_waiting == len(self.live)


def test_invariants_hold_after_every_step() -> None:
    """And what makes them hard to keep really happened: preemption, sharing, eviction, windows."""
    SchedulerMachine.happened = Counter()
    run_state_machine_as_test(SchedulerMachine, settings=settings(stateful_step_count=20))
    expected = {"preempted", "chunked", "hit", "evicted", "copied", "slid", "waited in line"}
    assert expected <= set(SchedulerMachine.happened), SchedulerMachine.happened
