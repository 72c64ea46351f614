"""Steps of decodes as graphs: captured once for each batch size, replayed from fixed buffers.

A decode step on a GPU is hundreds of small kernels, and starting them one by one takes longer than
they run. A graph starts them all at once, but it is bound to one batch size and to the addresses it
was captured with. So there is one graph for each bucket of `padded_buckets`, its inputs are buffers
that are overwritten in place before every replay, and rows that fill up a bucket write to the trash
page. What is captured is the same model, attention and cache as outside of graphs.

Capturing is a parameter: `CudaCapture` records, `run_eagerly` runs the very function on the very
buffers at every replay, so that all of this but the recording itself works and is tested on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from reference_engine.attention.backend import DecodePlanner
from reference_engine.attention.decode_tables import DecodeTables
from reference_engine.attention.exact import AttentionStep
from reference_engine.batch import BatchBuilder, BatchSequence
from reference_engine.kv_store import PagedStore
from reference_engine.model import LoadedModel, padded_wanted
from reference_engine.padded_buckets import bucket_sizes

Replay = Callable[[], None]
Capture = Callable[[Replay], Replay]


def run_eagerly(run: Replay) -> Replay:
    """The capture that captures nothing: a replay runs the function."""
    return run


class CudaCapture:
    """Records a function's kernels as a CUDA graph; all graphs share one pool of memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool: Any = None

    def __call__(self, run: Replay) -> Replay:
        """Run twice on a side stream, so that everything is compiled, then record."""
        current = torch.cuda.current_stream(self._device)
        side: Any = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        side.wait_stream(current)
        with torch.cuda.stream(side):
            run()
            run()
        current.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            run()
        self._pool = graph.pool()
        return graph.replay


@dataclass(frozen=True, slots=True)
class GraphInputs:
    """The buffers of one bucket: ids, positions: [1, padded rows]; slots: one [rows] a group."""

    ids: Tensor
    positions: Tensor
    slots: tuple[Tensor, ...]
    tables: DecodeTables


class DecodeGraphs:
    """Computes steps in which every sequence brings one token and the batch is a bucket.

    ``widths``: for each page group the pages of the longest block table. Raises ValueError for a
    model that cannot be captured.
    """

    def __init__(
        self,
        model: LoadedModel,
        store: PagedStore,
        *,
        sizes: Sequence[int],
        page_size: int,
        widths: tuple[int, ...],
        capture: Capture,
    ) -> None:
        if not isinstance(model.attention, DecodePlanner):
            raise ValueError(f"{model.attention.name} attention cannot run as a decode graph")
        if model.asks_for_shapes and isinstance(capture, CudaCapture):
            raise ValueError(
                f"{model.architecture} has mixture-of-experts layers, whose shapes follow the "
                "batch, and cannot run as a decode graph; set decode_graphs to False"
            )
        self.sizes = tuple(sizes)
        self.replays = 0
        self._model, self._store, self._planner = model, store, model.attention
        self._builder = BatchBuilder(page_size)
        self._page_size, self._widths, self._capture = page_size, widths, capture
        self._logits = torch.zeros(padded_wanted(max(sizes)), model.vocab_size, device=model.device)
        self._graphs: dict[int, tuple[GraphInputs, Replay]] = {}

    def takes(self, sequences: Sequence[BatchSequence]) -> bool:
        """Whether the step, padding included, is one of decodes of a size that has a graph."""
        return len(sequences) in self.sizes and all(s.count == 1 for s in sequences)

    def logits(self, sequences: Sequence[BatchSequence]) -> Tensor:
        """As `LoadedModel.logits` of the batch of these sequences: [wanted, vocab], a copy."""
        size = len(sequences)
        known = self._graphs.get(size)
        inputs = self._inputs(size) if known is None else known[0]
        self._fill(inputs, sequences)
        if known is None:  # captured with this step's own inputs: a warm-up run writes the same
            known = self._graphs[size] = inputs, self._capture(self._run_of(size, inputs))
        known[1]()
        self.replays += 1
        wanted = [row for row, sequence in enumerate(sequences) if sequence.wants_logits]
        return self._logits[wanted]

    def _inputs(self, size: int) -> GraphInputs:
        rows, device = self._model.padded_rows(size), self._model.device

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.long, device=device)

        return GraphInputs(
            ids=zeros(1, rows),
            positions=zeros(1, rows),
            slots=tuple(zeros(size) for _ in self._widths),
            tables=DecodeTables.empty(size, self._widths, self._page_size, device),
        )

    def _fill(self, inputs: GraphInputs, sequences: Sequence[BatchSequence]) -> None:
        """Overwrite the buffers with this step's contents."""
        rows = len(sequences)
        positions = torch.tensor([s.start for s in sequences])
        inputs.ids[0, :rows].copy_(torch.tensor([s.token_ids[0] for s in sequences]))
        inputs.positions[0, :rows].copy_(positions)
        inputs.tables.positions.copy_(positions)
        for group, (slots, table) in enumerate(
            zip(inputs.slots, inputs.tables.block_tables, strict=True)
        ):
            slots.copy_(torch.tensor([self._builder.slots(s, group)[0] for s in sequences]))
            pages = np.zeros(tuple(table.shape), np.int32)
            for row, sequence in enumerate(sequences):
                needed = sequence.block_tables[group][: sequence.start // self._page_size + 1]
                pages[row, : len(needed)] = needed
            table.copy_(torch.from_numpy(pages))

    def _run_of(self, size: int, inputs: GraphInputs) -> Replay:
        """The function that is captured: from the buffers to ``_logits``, nothing else."""
        keep = torch.zeros(padded_wanted(size), dtype=torch.long, device=self._model.device)
        keep[:size] = torch.arange(size, device=self._model.device)
        planner = self._planner

        def run() -> None:
            self._store.begin_decodes(inputs.slots)
            step = AttentionStep(
                inputs.tables, self._store, self._model.attention, planner.plan_decodes
            )
            logits = self._model.forward(inputs.ids, inputs.positions, keep, step)
            self._logits[: len(keep)].copy_(logits)

        return run


class GraphDials(Protocol):
    """What of an `EngineConfig` decides about graphs."""

    @property
    def page_size(self) -> int:
        """Tokens a page holds."""

    @property
    def num_pages(self) -> int:
        """Pages in a pool, the null page included."""

    @property
    def max_num_seqs(self) -> int:
        """Sequences that run at once."""

    @property
    def decode_graphs(self) -> bool | None:
        """Whether to have any; None: on CUDA, where the model can be captured."""


def decode_graphs(model: LoadedModel, store: PagedStore, config: GraphDials) -> DecodeGraphs | None:
    """The graphs of an engine, or None. Raises ValueError where they are wanted and cannot be."""
    on_cuda = model.device.type == "cuda"
    wanted = config.decode_graphs
    if not (on_cuda and not model.asks_for_shapes if wanted is None else wanted):
        return None
    pages = -(-model.max_context_tokens // config.page_size)
    if any(layer.window is None for layer in model.layers):
        pages = min(pages, config.num_pages)
    return DecodeGraphs(
        model,
        store,
        sizes=bucket_sizes(config.max_num_seqs),
        page_size=config.page_size,
        widths=(pages,) * len(store.trash_tables),
        capture=CudaCapture(model.device) if on_cuda else run_eagerly,
    )
