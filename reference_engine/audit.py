"""What the engine counts about itself: work, waste, and where the pages are."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from reference_engine.kv_cache import SequencePages
from reference_engine.scheduler import Scheduler
from reference_engine.step import ChunkKind, StepRecord


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since the start, whose names end in ``_total``, and gauges of this moment.

    ``prefix_queries_total`` counts tokens looked up in the prefix cache, ``prefix_hits_total``
    those found. Used pages are held by live requests, cached ones can be taken back at any time.

    What other ways to serve would have cost, in tokens through the model:

    - ``tokens_without_cache_total``: every step recomputes the whole context;
    - ``padding_tokens_dynamic_total``: the padding, if each step's chunks were a rectangle;
    - ``padding_tokens_static_total``: the padding of static batches, ``max_num_seqs`` sequences in
      order of their end, padded to the longest; an unfinished batch counts when all have ended;
    - ``padding_tokens_spent_total``: what was spent: none, unless decodes are padded to buckets.

    ``graph_steps_total`` counts the steps that ran as a decode graph, ``overlapped_steps_total``
    those that were planned while the one before still ran, and ``overlap_dropped_total`` the
    chunks of such plans that were left out because their sequence had ended.
    """

    requests_total: int
    finished_total: int
    cancelled_total: int
    running: int
    waiting: int
    steps_total: int
    prompt_tokens_total: int
    prefill_tokens_total: int
    decode_tokens_total: int
    generated_tokens_total: int
    budget_tokens_total: int
    preemptions_total: int
    prefix_hits_total: int
    prefix_queries_total: int
    prefix_evictions_total: int
    pages_total: int
    pages_free: int
    pages_used: int
    pages_cached: int
    kv_bytes_per_token: int
    tokens_without_cache_total: int
    prefill_chunks_total: int
    padding_tokens_dynamic_total: int
    padding_tokens_static_total: int
    padding_tokens_spent_total: int
    graph_steps_total: int
    overlapped_steps_total: int
    overlap_dropped_total: int

    @property
    def computed_tokens(self) -> int:
        """Tokens that went through the model."""
        return self.prefill_tokens_total + self.decode_tokens_total

    @property
    def budget_utilisation(self) -> float | None:
        """Computed tokens over the budget of all steps; None before the first step."""
        return self.computed_tokens / self.budget_tokens_total if self.budget_tokens_total else None

    def as_dict(self) -> dict[str, float]:
        """All counters and gauges by name."""
        return asdict(self)


class StaticBatches:
    """What static batching would have cost: batches that are padded and refilled as a whole."""

    def __init__(self, batch_size: int) -> None:
        self.padding = 0
        self._batch_size = batch_size
        self._lengths: list[int] = []

    def add(self, tokens: int) -> None:
        """Put one sequence of this length into the batch."""
        self._lengths.append(tokens)
        if len(self._lengths) == self._batch_size:
            self.close()

    def close(self) -> None:
        """Count the batch as a rectangle."""
        if self._lengths:
            self.padding += max(self._lengths) * len(self._lengths) - sum(self._lengths)
            self._lengths.clear()


class Audit:
    """Adds up what the steps did."""

    def __init__(self, batch_size: int) -> None:
        """``batch_size``: sequences that run at once."""
        self._static = StaticBatches(batch_size)
        self._prefill_chunks = 0
        self.requests = 0
        self.finished = 0
        self.cancelled = 0
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self.steps = 0
        self.padding_tokens = 0
        self.graph_steps = 0
        self.overlapped_steps = 0
        self.overlap_dropped = 0
        self._prefill_tokens = 0
        self._decode_tokens = 0
        self._budget_tokens = 0
        self._without_cache = 0
        self._padding_dynamic = 0

    def ended(self, computed_tokens: int, *, idle: bool) -> None:
        """A sequence has ended after so many tokens went through the model."""
        self._static.add(computed_tokens)
        if idle:
            self._static.close()

    def count(self, step: StepRecord) -> None:
        """Add one step."""
        self.steps += 1
        self._budget_tokens += step.token_budget
        for chunk in step.chunks:
            if chunk.kind is ChunkKind.DECODE:
                self._decode_tokens += chunk.count
            else:
                self._prefill_tokens += chunk.count
                self._prefill_chunks += 1
            self._without_cache += chunk.start + chunk.count
        longest = max(chunk.count for chunk in step.chunks)
        self._padding_dynamic += longest * len(step.chunks) - step.num_tokens

    def stats(
        self, scheduler: Scheduler, pages: SequencePages, kv_bytes_per_token: int
    ) -> EngineStats:
        """The counters, with the gauges of this moment."""
        pools = [group.pool for group in pages.groups]
        return EngineStats(
            requests_total=self.requests,
            finished_total=self.finished,
            cancelled_total=self.cancelled,
            running=len(scheduler.running),
            waiting=scheduler.num_waiting,
            steps_total=self.steps,
            prompt_tokens_total=self.prompt_tokens,
            prefill_tokens_total=self._prefill_tokens,
            decode_tokens_total=self._decode_tokens,
            generated_tokens_total=self.generated_tokens,
            budget_tokens_total=self._budget_tokens,
            preemptions_total=scheduler.preemptions,
            prefix_hits_total=pages.prefix_hit_tokens,
            prefix_queries_total=pages.prefix_query_tokens,
            prefix_evictions_total=sum(pool.evictions for pool in pools),
            pages_total=sum(pool.num_pages - 1 for pool in pools),
            pages_free=sum(pool.free for pool in pools),
            pages_used=sum(pool.used for pool in pools),
            pages_cached=sum(pool.cached for pool in pools),
            kv_bytes_per_token=kv_bytes_per_token,
            tokens_without_cache_total=self._without_cache,
            prefill_chunks_total=self._prefill_chunks,
            padding_tokens_static_total=self._static.padding,
            padding_tokens_dynamic_total=self._padding_dynamic,
            padding_tokens_spent_total=self.padding_tokens,
            graph_steps_total=self.graph_steps,
            overlapped_steps_total=self.overlapped_steps,
            overlap_dropped_total=self.overlap_dropped,
        )
