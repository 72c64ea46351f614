"""Faults of page ownership, and of what is read beside one's own pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reference_engine.faults.seam import FaultRun, Healthy, Wrapper, fault

if TYPE_CHECKING:
    from reference_engine.page_group import PageNews
    from reference_engine.sequence import Sequence


@fault(
    "page-freed-early",
    "A page is freed while it is still read",
    imitates=("TGI#2489", "sglang#38319", "vllm#37076"),
    group="prefix cache and KV block lifecycle",
)
def page_freed_early() -> Mapping[str, Wrapper]:
    """The first page of a request that has generated a token is given back to the pool, so that
    the next request in need of a page writes over it.
    """

    def register(healthy: Healthy, run: FaultRun) -> Healthy:
        def freeing_register(sequence: Sequence) -> None:
            healthy(sequence)
            freed = run.memory.setdefault("freed", {})
            page = sequence.block_tables[0][0]
            if sequence.output_tokens == 0 or page in (0, freed.get(sequence.key)):
                return
            freed[sequence.key] = page
            pool: Any = healthy.__self__.groups[0].pool  # type: ignore[attr-defined]
            pool.prefixes.forget(page)
            pool.give_back([page])
            run.executed()

        return freeing_register

    return {"pages.register": register}


@fault(
    "stale-page-read",
    "Pages are not cleared and one slot past the end is read",
    imitates=("vllm#53856", "vllm#43990", "vllm#36939"),
    group="padding, null blocks and stale KV",
)
def stale_page_read() -> Mapping[str, Wrapper]:
    """A page keeps what its last owner wrote, and decodes read one slot past their last token."""

    def apply(healthy: Healthy, run: FaultRun) -> Healthy:
        def careless(news: PageNews) -> None:
            if news.action.value != "clear":
                healthy(news)

        return careless

    def plan(healthy: Healthy, run: FaultRun) -> Healthy:
        return lambda *args: see_one_more(healthy(*args), args[0], run)

    return {"engine.apply": apply, "attention.plan": plan}


@fault(
    "null-slot-visible",
    "An empty padding slot is visible",
    imitates=("vllm#36939", "vllm#641", "mlx-lm#1736"),
    group="padding, null blocks and stale KV",
)
def null_slot_visible() -> Mapping[str, Wrapper]:
    """Decodes also attend to the empty slot after their last token: key and value are zero."""

    def plan(healthy: Healthy, run: FaultRun) -> Healthy:
        return lambda *args: see_one_more(healthy(*args), args[0], run)

    return {"attention.plan": plan}


def see_one_more(plan: Any, batch: Any, run: FaultRun) -> Any:
    """Let every decode that does not fill its page see the slot after its last token."""
    ends = plan.ends.copy()
    for row, sequence in zip(batch.cu_seqlens, batch.sequences, strict=False):
        if sequence.count == 1 and sequence.context % batch.page_size:
            ends[row] += 1
            run.executed()
    return replace(plan, ends=ends)
