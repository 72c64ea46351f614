"""Faults of page ownership and of the prefix cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reference_engine.faults.seam import FaultRun, Healthy, Wrapper, fault

if TYPE_CHECKING:
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
