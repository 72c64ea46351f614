"""Faults of the batch's metadata: who stands where, and who sees whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reference_engine.faults.seam import FaultRun, Healthy, Wrapper, fault

if TYPE_CHECKING:
    from reference_engine.batch import BatchSequence, RaggedBatch


@fault(
    "neighbour-visible",
    "A neighbour's token is visible",
    imitates=("vllm#39589", "turboderp/exllama#101", "maclocal-api#140"),
    group="position, mask and ragged-mix errors",
)
def neighbour_visible() -> Mapping[str, Wrapper]:
    """Every decoding request that has a neighbour in the batch also attends to one token of it, as
    if its mask reached one key too far.
    """

    def step(healthy: Healthy, run: FaultRun) -> Healthy:
        def leaking_step(batch: RaggedBatch) -> Any:
            run.memory["leaks"] = _leaks(batch)
            return healthy(batch)

        return leaking_step

    def put(healthy: Healthy, run: FaultRun) -> Healthy:
        def leaking_put(layer: int, keys: Any, values: Any) -> None:
            healthy(layer, keys, values)
            store: Any = healthy.__self__  # type: ignore[attr-defined]
            for row, neighbour in run.memory["leaks"].items():
                slot = int(store.slots_of(layer)[row]) + 1
                store.put_at(layer, slot, keys[:, neighbour], values[:, neighbour])

        return leaking_put

    def plan(healthy: Healthy, run: FaultRun) -> Healthy:
        def leaking_plan(batch: RaggedBatch, window: int | None, group: int) -> Any:
            ranges = healthy(batch, window, group)
            ends = ranges.ends.copy()
            for row in run.memory["leaks"]:
                ends[row] += 1
                run.executed()
            return replace(ranges, ends=ends)

        return leaking_plan

    return {"attention.step": step, "store.put": put, "attention.plan": plan}


def _leaks(batch: RaggedBatch) -> dict[int, int]:
    """Row of a decode -> row of its neighbour, where the next slot is in the same page."""
    leaks = {}
    for index, sequence in enumerate(batch.sequences):
        alone = len(batch.sequences) == 1
        if alone or sequence.count != 1 or sequence.context % batch.page_size == 0:
            continue
        other = (index + 1) % len(batch.sequences)
        leaks[batch.cu_seqlens[index]] = batch.cu_seqlens[other + 1] - 1
    return leaks


@fault(
    "decode-position",
    "Decode positions are off by one",
    imitates=("llama.cpp#17316", "MinivLLM#98"),
    group="position, mask and ragged-mix errors",
)
def decode_position() -> Mapping[str, Wrapper]:
    """Every decode step tells the model a position one too large."""

    def positions(healthy: Healthy, run: FaultRun) -> Healthy:
        def shifted(sequence: BatchSequence) -> list[int]:
            shift = int(sequence.count == 1 and sequence.start > 0)
            if shift:
                run.executed()
            return [position + shift for position in healthy(sequence)]

        return shifted

    return {"batch.positions": positions}
