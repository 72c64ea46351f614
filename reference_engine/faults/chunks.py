"""Faults at the edges of chunks, pages and sliding windows, and of steps built too early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from reference_engine.faults.seam import FaultRun, Healthy, Wrapper, fault

if TYPE_CHECKING:
    from reference_engine.batch import BatchSequence
    from reference_engine.scheduler import Chunk

EDGES: Final = "chunk and page boundaries, mixed prefill and decode"
WINDOWS: Final = "sliding window and hybrid cache edges"


@fault(
    "chunk-positions-restart",
    "Positions restart at every prefill chunk",
    imitates=("tenstorrent/vllm#415", "MinivLLM#98"),
    group=EDGES,
)
def chunk_positions_restart() -> Mapping[str, Wrapper]:
    """The second and later chunks of a prompt, and what follows a prefix hit, count from 0."""

    def positions(healthy: Healthy, run: FaultRun) -> Healthy:
        def restarted(sequence: BatchSequence) -> list[int]:
            if sequence.start == 0 or sequence.count == 1:
                return list(healthy(sequence))
            run.executed()
            return list(range(sequence.count))

        return restarted

    return {"batch.positions": positions}


@fault(
    "full-page-slot",
    "The token that fills a page is stored in the wrong slot",
    imitates=("vllm#7380", "vllm#36580", "sglang-jax#20"),
    group=EDGES,
)
def full_page_slot() -> Mapping[str, Wrapper]:
    """A chunk whose end is a multiple of the page size writes its last token over the one before
    it, so that the last slot of the page stays empty.
    """

    def slots(healthy: Healthy, run: FaultRun) -> Healthy:
        def short(sequence: BatchSequence, group: int) -> list[int]:
            stored = list(healthy(sequence, group))
            table = sequence.block_tables[group]
            exact = sequence.count > 1 and len(table) * _page_size(healthy) == sequence.context
            if exact:
                stored[-1] = stored[-2]
                run.executed()
            return stored

        return short

    return {"batch.slots": slots}


def _page_size(healthy: Healthy) -> int:
    return int(healthy.__self__._page_size)  # type: ignore[attr-defined]


@fault(
    "last-key-hidden",
    "The newest token does not see itself",
    imitates=("transformers#41184", "transformers#47708"),
    group="position, mask and ragged-mix errors",
)
def last_key_hidden() -> Mapping[str, Wrapper]:
    """The mask of decodes ends one key early: the newest key and value are left out."""

    def plan(healthy: Healthy, run: FaultRun) -> Healthy:
        def early(batch: Any, window: int | None, group: int) -> Any:
            ranges = healthy(batch, window, group)
            ends = ranges.ends.copy()
            for row, sequence in zip(batch.cu_seqlens, batch.sequences, strict=False):
                if sequence.count == 1 and sequence.context > 1:
                    ends[row] -= 1
                    run.executed()
            return replace(ranges, ends=ends)

        return early

    return {"attention.plan": plan}


def _with_window_off_by(amount: int) -> Mapping[str, Wrapper]:
    def plan(healthy: Healthy, run: FaultRun) -> Healthy:
        def resized(batch: Any, window: int | None, group: int) -> Any:
            if window is None:
                return healthy(batch, window, group)
            run.executed()
            return healthy(batch, max(1, window + amount), group)

        return resized

    return {"attention.plan": plan}


@fault(
    "window-too-wide",
    "The sliding window shows one token too many",
    imitates=("transformers#41184", "mistral.rs#246"),
    group=WINDOWS,
)
def window_too_wide() -> Mapping[str, Wrapper]:
    """Layers with a sliding window see one position further back than they should."""
    return _with_window_off_by(1)


@fault(
    "window-too-narrow",
    "The sliding window shows one token too few",
    imitates=("sglang#8649", "transformers#47708"),
    group=WINDOWS,
)
def window_too_narrow() -> Mapping[str, Wrapper]:
    """Layers with a sliding window miss the oldest position that they should see."""
    return _with_window_off_by(-1)


@fault(
    "stale-token-fed",
    "A step is built before the last token is known",
    imitates=("tenstorrent/vllm#395", "vllm#46899", "vllm#40768"),
    group="overlapped scheduling",
)
def stale_token_fed() -> Mapping[str, Wrapper]:
    """When a prompt joins the batch, the decodes beside it are fed the token before the newest."""

    def batch_sequence(healthy: Healthy, run: FaultRun) -> Healthy:
        def stale(chunk: Chunk) -> Any:
            described = healthy(chunk)
            sequence = chunk.sequence
            if not sequence.decodes:
                run.memory["joining"] = 2
                return described
            if sequence.output_tokens < 2 or run.memory.get("joining", 0) == 0:
                return described
            run.memory["joining"] -= 1
            run.executed()
            return replace(described, token_ids=(sequence.tokens[-2],))

        return stale

    return {"engine.batch_sequence": batch_sequence}
