"""Faults of the scheduler: resuming, refusing, waiting, cancelling."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from reference_engine.faults.seam import FaultRun, Healthy, Wrapper, fault, owner

if TYPE_CHECKING:
    from reference_engine.request import Request
    from reference_engine.scheduler import Plan
    from reference_engine.sequence import Sequence

RESUME: Final = "preemption and resume"
WAITING: Final = "deadlock, livelock and starvation"
TECHNIQUE: Final = "a technique that is claimed but not there"


@fault(
    "resume-without-outputs",
    "A preempted request forgets what it has generated",
    imitates=("FastDeploy#3080", "vllm-ascend#11334", "vllm#16832"),
    group=RESUME,
)
def resume_without_outputs() -> Mapping[str, Wrapper]:
    """Preemption keeps the prompt only; the request generates its first tokens again."""

    def preempt(healthy: Healthy, run: FaultRun) -> Healthy:
        def forgetful(plan: Plan, victim: Sequence) -> int:
            given = int(healthy(plan, victim))
            if victim.output_tokens:
                del victim.tokens[victim.prompt_tokens :]
                run.executed()
            return given

        return forgetful

    return {"scheduler.preempt": preempt}


@fault(
    "resume-as-decode",
    "A preempted request resumes as if its keys were still there",
    imitates=("tenstorrent/vllm#326", "nano-vllm#144", "vllm-gaudi#524"),
    group=RESUME,
)
def resume_as_decode() -> Mapping[str, Wrapper]:
    """A resumed request computes its newest token only; all keys before it are empty."""

    def attach(healthy: Healthy, run: FaultRun) -> Healthy:
        def as_decode(sequence: Sequence, prefix: Any) -> None:
            healthy(sequence, prefix)
            if sequence.output_tokens:
                sequence.computed = len(sequence.tokens) - 1
                run.executed()

        return as_decode

    return {"pages.attach": attach}


@fault(
    "oversized-request-admitted",
    "A request that can never fit waits for ever",
    imitates=("vllm#39734", "vllm#765"),
    group=WAITING,
)
def oversized_request_admitted() -> Mapping[str, Wrapper]:
    """A request larger than the whole cache is not refused; it blocks the queue behind it."""

    def check_fits(healthy: Healthy, run: FaultRun) -> Healthy:
        def anything_fits(request: Request) -> None:
            try:
                healthy(request)
            except ValueError:
                run.executed()

        return anything_fits

    return {"engine.check_fits": check_fits}


@fault(
    "newest-first",
    "The newest request is served first",
    imitates=("vllm#45414", "vllm#45387"),
    group=WAITING,
)
def newest_first() -> Mapping[str, Wrapper]:
    """The queue is a stack: under load the oldest request waits until nobody else comes."""

    def order(healthy: Healthy, run: FaultRun) -> Healthy:
        def reversed_order(sequence: Sequence) -> tuple[int, int, int]:
            priority, arrival, choice = healthy(sequence)
            if owner(healthy).num_waiting:
                run.executed()
            return priority, -arrival, choice

        return reversed_order

    return {"scheduler.order": order}


@fault(
    "resume-half-computed",
    "A resumed request skips part of its recomputation",
    imitates=("vllm#5349", "nano-vllm#211"),
    group=RESUME,
)
def resume_half_computed() -> Mapping[str, Wrapper]:
    """The first half of a resumed request's tokens is taken for computed; its keys are empty."""

    def attach(healthy: Healthy, run: FaultRun) -> Healthy:
        def half(sequence: Sequence, prefix: Any) -> None:
            healthy(sequence, prefix)
            if sequence.output_tokens and sequence.computed < len(sequence.tokens) // 2:
                sequence.computed = len(sequence.tokens) // 2
                run.executed()

        return half

    return {"pages.attach": attach}


@fault(
    "cancel-leaks-pages",
    "A cancelled request keeps its pages",
    imitates=("sglang#1674", "sglang#2238", "vllm#18411"),
    group="cancel, abort and disconnect",
)
def cancel_leaks_pages() -> Mapping[str, Wrapper]:
    """The pages of a cancelled request are never given back."""

    def cancel(healthy: Healthy, run: FaultRun) -> Healthy:
        def leaking(request_id: str, choice: int | None = None) -> Any:
            run.memory["cancelling"] = True
            try:
                return healthy(request_id, choice)
            finally:
                run.memory["cancelling"] = False

        return leaking

    def release(healthy: Healthy, run: FaultRun) -> Healthy:
        def unless_cancelled(sequence: Sequence) -> None:
            if run.memory.get("cancelling") and sequence.block_tables:
                sequence.block_tables = []
                run.executed()
            healthy(sequence)

        return unless_cancelled

    return {"generation.cancel": cancel, "pages.release": release}


@fault(
    "cancel-takes-the-neighbour",
    "Cancelling one request ends another",
    imitates=("llama.cpp#23493", "sglang#23392"),
    group="cancel, abort and disconnect",
)
def cancel_takes_the_neighbour() -> Mapping[str, Wrapper]:
    """A cancel also ends the oldest other request that runs, as if its slot had been looked up by
    place.
    """

    def cancel(healthy: Healthy, run: FaultRun) -> Healthy:
        def careless(request_id: str, choice: int | None = None) -> Any:
            events = healthy(request_id, choice)
            live = owner(healthy)._live
            if events and live:
                run.executed()
                events = [*events, *healthy(next(iter(live)))]
            return events

        return careless

    return {"generation.cancel": cancel}


@fault(
    "static-batching",
    "A batch is refilled only when all of it has ended",
    imitates=("Orca (OSDI 2022), the baseline",),
    group=TECHNIQUE,
)
def static_batching() -> Mapping[str, Wrapper]:
    """Requests are admitted when nothing runs, and never while something does."""

    def admit(healthy: Healthy, run: FaultRun) -> Healthy:
        def when_empty(plan: Plan, budget: int) -> None:
            scheduler: Any = owner(healthy)
            if scheduler.running:
                if scheduler.num_waiting:
                    run.executed()
                return
            healthy(plan, budget)

        return when_empty

    return {"scheduler.admit": admit}


@fault(
    "freed-slot-not-refilled",
    "A slot that an ended request leaves stays empty until the whole batch has ended",
    imitates=("vllm#45414", "optimum-neuron#470"),
    group=TECHNIQUE,
)
def freed_slot_not_refilled() -> Mapping[str, Wrapper]:
    """Late requests may take slots that nobody has used, but none that somebody has left, as long
    as anybody of the batch runs.
    """

    def admit(healthy: Healthy, run: FaultRun) -> Healthy:
        def into_unused_slots(plan: Plan, budget: int) -> None:
            scheduler: Any = owner(healthy)
            running, slots = len(scheduler.running), scheduler.max_num_seqs
            taken = max(run.memory.get("taken", 0), running) if running else 0
            scheduler.max_num_seqs = running + max(0, slots - taken)
            try:
                healthy(plan, budget)
                full = len(scheduler.running) == scheduler.max_num_seqs
                if full and scheduler.num_waiting and taken > running:
                    run.executed()
            finally:
                scheduler.max_num_seqs = slots
            run.memory["taken"] = taken + len(plan.admitted)

        return into_unused_slots

    return {"scheduler.admit": admit}


@fault(
    "no-chunked-prefill",
    "A long prompt is computed in one step while everybody waits",
    imitates=("sglang-jax#1328",),
    group=TECHNIQUE,
)
def no_chunked_prefill() -> Mapping[str, Wrapper]:
    """The token budget does not bind: a prompt of any length is one chunk."""

    def plan(healthy: Healthy, run: FaultRun) -> Healthy:
        def unbounded() -> Any:
            scheduler: Any = owner(healthy)
            budget, scheduler.token_budget = scheduler.token_budget, 1 << 20
            try:
                made = healthy()
            finally:
                scheduler.token_budget = budget
            if made.num_tokens > budget:
                run.executed()
            return made

        return unbounded

    return {"scheduler.plan": plan}


@fault(
    "padded-to-the-longest",
    "Every request costs as much as the longest of the batch",
    imitates=("the padded batch of transformers generate",),
    group=TECHNIQUE,
)
def padded_to_the_longest() -> Mapping[str, Wrapper]:
    """A step takes as long as if all its chunks were padded to the longest one."""

    def compute(healthy: Healthy, run: FaultRun) -> Healthy:
        def padded(plan: Plan) -> Any:
            began = time.perf_counter()
            logits = healthy(plan)
            took = time.perf_counter() - began
            rectangle = len(plan.chunks) * max(chunk.count for chunk in plan.chunks)
            if rectangle > plan.num_tokens:
                run.executed()
                time.sleep(took * (rectangle / plan.num_tokens - 1))
            return logits

        return padded

    return {"engine.compute": compute}


@fault(
    "no-kv-cache",
    "Every token recomputes the whole context",
    imitates=("transformers generate with use_cache=False",),
    group=TECHNIQUE,
)
def no_kv_cache() -> Mapping[str, Wrapper]:
    """A step takes as long as if no keys and values were kept between steps: the tokens computed
    again are charged at the best price per token seen so far.
    """

    def compute(healthy: Healthy, run: FaultRun) -> Healthy:
        def recomputing(plan: Plan) -> Any:
            began = time.perf_counter()
            logits = healthy(plan)
            took = time.perf_counter() - began
            price = min(took / plan.num_tokens, run.memory.get("price", took))
            run.memory["price"] = price
            again = sum(chunk.start for chunk in plan.chunks)
            if again:
                run.executed()
                time.sleep(price * again)
            return logits

        return recomputing

    return {"engine.compute": compute}
