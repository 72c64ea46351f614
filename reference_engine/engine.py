"""The engine: continuous batching over one model, one step at a time.

One thread calls `submit`, `cancel` and `step`; nothing here is locked. The path of a request:
`submit` checks it and lets it wait; a plan admits it; its chunks run in ragged batches; at the end
of its prompt, and after every decode, a token is sampled and an event handed out; it retires when
it ends, and its pages are free for the next plan.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from reference_engine.admission import check_request
from reference_engine.attention.exact import ExactAttention
from reference_engine.audit import Audit, EngineStats
from reference_engine.batch import BatchBuilder, BatchSequence
from reference_engine.decode_graphs import decode_graphs
from reference_engine.faults import Fault, FaultRun, install
from reference_engine.generation import Generation
from reference_engine.kv_cache import SequencePages
from reference_engine.kv_store import PagedStore, page_groups
from reference_engine.lookahead import Lookahead
from reference_engine.model import LoadedModel
from reference_engine.padded_buckets import PaddedBuckets
from reference_engine.page_group import PageAction, PageGroup, PageNews
from reference_engine.request import Request, RequestRefused, TokenEvent
from reference_engine.sampler import Sampler
from reference_engine.scheduler import Chunk, Plan, Scheduler
from reference_engine.step import StepChunk, StepRecord, describe


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The dials of the engine. None of them changes any answer.

    page_size: tokens a page holds. num_pages: pages in the pool, the null page included; layers
    with a sliding window have a pool of their own, of no more pages than they can fill.
    token_budget: tokens a step computes at most. max_num_seqs: sequences that run at once.
    poison_freed_pages: fill freed pages with NaN, so that a stale read is seen at once.
    pad_decodes: fill up steps of decodes to the batch sizes of `padded_buckets`.
    decode_graphs: fill up steps of decodes and run them by `decode_graphs`; None: on CUDA, where
    the model can be captured. overlap: plan a step while the one before runs; see `lookahead`.
    A fault is put into the plain path: where one is switched on, both are off.
    """

    page_size: int = 16
    num_pages: int = 2048
    token_budget: int = 256
    max_num_seqs: int = 64
    prefix_caching: bool = True
    poison_freed_pages: bool = False
    pad_decodes: bool = False
    decode_graphs: bool | None = None
    overlap: bool = False

    def __post_init__(self) -> None:
        for name in ("page_size", "token_budget", "max_num_seqs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.num_pages < 2:
            raise ValueError("num_pages must be at least 2: the null page and one to use")


class Engine:
    """Continuous batching with exact answers.

    Raises ValueError when the configuration is impossible. ``fault`` switches on one defect of
    `reference_engine.faults`.
    """

    def __init__(
        self, model: LoadedModel, config: EngineConfig | None = None, fault: Fault | None = None
    ) -> None:
        self.model = model
        self.config = config or EngineConfig()
        groups = page_groups(model.layers, self.config)
        self._check_page_size()
        self._store = PagedStore(
            model.layers, groups, self.config.page_size, model.dtype, model.device
        )
        self._pages = SequencePages(
            groups,
            self.config.page_size,
            chunk_tokens=self.config.token_budget,
            prefix_caching=self.config.prefix_caching,
        )
        self._scheduler = Scheduler(
            self._pages,
            token_budget=self.config.token_budget,
            max_num_seqs=self.config.max_num_seqs,
        )
        self._attention = ExactAttention(self._store, model.attention)
        self._builder = BatchBuilder(self.config.page_size)
        self._graphs = None if fault else decode_graphs(model, self._store, self.config)
        self._buckets = (
            PaddedBuckets(self.config.max_num_seqs, self._store.trash_tables)
            if self.config.pad_decodes or self._graphs is not None
            else None
        )
        self._sampler = Sampler()
        self._audit = Audit(self.config.max_num_seqs)
        self._generation = Generation(model, self._scheduler, self._sampler, self._audit)
        overlaps = self.config.overlap and fault is None
        self._lookahead = self._lookahead_of() if overlaps else None
        self._pending: list[TokenEvent] = []
        self._last_step: StepRecord | None = None
        self.fault_run: FaultRun | None = install(fault, self.parts) if fault else None

    def _check_page_size(self) -> None:
        size, multiple = self.config.page_size, self.model.attention.page_multiple
        if size % multiple:
            raise ValueError(
                f"{self.model.attention.name} attention as installed here needs a page size that "
                f"is a multiple of {multiple}, not {size}; choose --page-size {multiple}"
            )

    def _lookahead_of(self) -> Lookahead:
        return Lookahead(
            self._scheduler,
            self._generation,
            self._audit,
            assemble=self.batch_sequence,
            run=self.run,
            settle_pages=self._settle_pages,
        )

    @property
    def parts(self) -> Mapping[str, object]:
        """The objects on which faults may be installed."""
        return {
            "engine": self,
            "scheduler": self._scheduler,
            "pages": self._pages,
            "group": self._pages.groups[0],
            "pool": self._pages.groups[0].pool,
            "prefixes": self._pages.groups[0].pool.prefixes,
            "batch": self._builder,
            "attention": self._attention,
            "store": self._store,
            "sampler": self._sampler,
            "generation": self._generation,
        }

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do or to tell."""
        in_flight = self._lookahead is not None and self._lookahead.in_flight is not None
        return self._scheduler.has_work or bool(self._pending) or in_flight

    @property
    def last_step(self) -> StepRecord | None:
        """What the last step computed; None before the first."""
        return self._last_step

    @property
    def page_groups(self) -> tuple[PageGroup, ...]:
        """The page groups with their pools: one for each sliding window of the model."""
        return self._pages.groups

    def stats(self) -> EngineStats:
        """Counters since the start, and gauges."""
        return self._audit.stats(self._scheduler, self._pages, self._store.bytes_per_token)

    def submit(self, request: Request) -> None:
        """Let the request wait for its turn. Raises RequestRefused, and nothing has happened."""
        if request.request_id in self._generation:
            raise RequestRefused(
                f"a request with id {request.request_id!r} is being served", field="request_id"
            )
        self.check_parameters(request)
        self.check_fits(request)
        self._scheduler.add(self._generation.begin(request))

    def cancel(self, request_id: str, choice: int | None = None) -> bool:
        """End the request, or one choice of it; False if there is none. Pages are free at once.

        The next step hands out a ``cancelled`` event for each choice that was still open. The
        layer above uses it for a client that left and, choice by choice, for stop strings, which
        are found in text and so outside the engine.
        """
        events = self._generation.cancel(request_id, choice)
        self._pending += events
        return bool(events)

    def step(self) -> list[TokenEvent]:
        """Compute one batch and return what it brought, in batch order."""
        t_start_s = time.monotonic()
        events, self._pending = self._pending, []
        if self._lookahead is not None:
            news, done = self._lookahead.step()
            if done is not None:
                self._record(done.plan, done.chunks, done.t_start_s)
            return events + news
        plan = self._scheduler.plan()
        self._settle_pages()
        if plan.chunks:
            chunks = tuple(describe(chunk) for chunk in plan.chunks)
            logits = self.compute(plan)
            self._scheduler.commit(plan)
            events += self._generation.advance(plan, logits)
            self._record(plan, chunks, t_start_s)
        return events

    def _settle_pages(self) -> None:
        for news in self._pages.news():
            self.apply(news)

    def apply(self, news: PageNews) -> None:
        """Carry out one change of page ownership in memory."""
        if news.action is PageAction.CLEAR:
            if self.model.attention.reads_hidden_keys:
                self._store.fill_page(news.group, news.page, 0.0)
        elif news.action is PageAction.COPY and news.source is not None:
            self._store.copy_page(news.group, news.source, news.page)
        elif self.config.poison_freed_pages:
            self._store.fill_page(news.group, news.page, float("nan"))

    def check_parameters(self, request: Request) -> None:
        """Raise RequestRefused for what the model could never do, whatever the memory."""
        check_request(self.model, request)

    def check_fits(self, request: Request) -> None:
        """Raise RequestRefused for what the cache could never hold.

        The last token is never written, so ``prompt + max_tokens - 1`` tokens must fit.
        """
        tokens = len(request.prompt_ids) + request.params.max_tokens - 1
        if not self._pages.can_ever_hold(tokens):
            size, pages = self.config.page_size, self.config.num_pages - 1
            raise RequestRefused(
                f"the request needs keys and values for {tokens} tokens, more than the cache's "
                f"{pages} pages of {size} can hold",
                field="max_tokens"
                if self._pages.can_ever_hold(len(request.prompt_ids))
                else "prompt_ids",
            )

    @property
    def max_request_tokens(self) -> int:
        """The most tokens, prompt and answer together, that context and cache let a request have.

        The last token is never written, so it needs no room in the cache.
        """
        return bisect_left(
            range(self.model.max_context_tokens),
            True,
            key=lambda written: not self._pages.can_ever_hold(written),
        )

    def compute(self, plan: Plan) -> Tensor:
        """Run the model over the plan's chunks; returns the logits that are wanted, on the CPU."""
        return self.run([self.batch_sequence(chunk) for chunk in plan.chunks])

    def run(self, sequences: Sequence[BatchSequence]) -> Tensor:
        """Run the model over these sequences' tokens; returns the logits that they want."""
        if self._buckets is not None:
            sequences = self._buckets.pad(sequences)
            self._audit.padding_tokens = self._buckets.padding_rows
        if self._graphs is not None and self._graphs.takes(sequences):
            self._audit.graph_steps += 1
            return self._graphs.logits(sequences).cpu()
        batch = self._builder.build(sequences)
        self._store.begin_step(batch.slots)
        return self.model.logits(batch, self._attention.step(batch)).cpu()

    def batch_sequence(self, chunk: Chunk) -> BatchSequence:
        """What the batch has to know about a chunk."""
        sequence = chunk.sequence
        return BatchSequence(
            tuple(sequence.tokens[chunk.start : chunk.start + chunk.count]),
            chunk.start,
            sequence.block_tables,
            self._generation.wanted_logits(chunk),
        )

    def _record(self, plan: Plan, chunks: tuple[StepChunk, ...], t_start_s: float) -> None:
        pools = [group.pool for group in self._pages.groups]
        self._last_step = StepRecord(
            index=self._audit.steps,
            t_start_s=t_start_s,
            t_end_s=time.monotonic(),
            chunks=chunks,
            preempted=tuple(s.request.request_id for s in plan.preempted),
            token_budget=self.config.token_budget,
            waiting=self._scheduler.num_waiting,
            pages_free=sum(pool.free for pool in pools),
            pages_used=sum(pool.used for pool in pools),
            pages_cached=sum(pool.cached for pool in pools),
        )
        self._audit.count(self._last_step)
