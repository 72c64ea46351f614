"""The memory behind the page numbers: keys and values of every layer, in pages."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import psutil
import torch
from torch import Tensor

from reference_engine import cpu_kernels
from reference_engine.attention.plan import unit_size
from reference_engine.numerics import KEY_BLOCK, padded
from reference_engine.page_group import GroupConfig

if TYPE_CHECKING:
    from reference_engine.model import LayerShape


class PoolSizes(Protocol):
    """The dials that decide how much memory keys and values take; see `EngineConfig`."""

    @property
    def page_size(self) -> int:
        """Tokens a page holds."""

    @property
    def num_pages(self) -> int:
        """Pages in a pool, the null page included."""

    @property
    def token_budget(self) -> int:
        """Tokens a step computes at most."""

    @property
    def max_num_seqs(self) -> int:
        """Sequences that run at once."""


def page_groups(layers: Sequence[LayerShape], config: PoolSizes) -> tuple[GroupConfig, ...]:
    """The page groups of a model: one for each sliding window that occurs, None among them.

    The pool of a window group is no larger than what ``max_num_seqs`` sequences can hold.
    """
    groups = []
    for window in dict.fromkeys(layer.window for layer in layers):
        pages = config.num_pages
        if window is not None:
            widest = -(-(window - 1 + config.token_budget) // config.page_size) + 2
            pages = min(pages, 1 + config.max_num_seqs * widest)
        groups.append(GroupConfig(pages, window))
    return tuple(groups)


class CacheTooLarge(ValueError):
    """The pages that were asked for do not fit into memory."""


class PagedStore:
    """Keys and values of all layers in fixed pages; page 0 of each group is always zero.

    Each layer's tensor is [kv_heads, pages * page_size, head_dim]: the tokens of a page lie
    together for each head, so a block of keys is gathered in runs of `unit_size` tokens.
    Raises CacheTooLarge before it takes memory that is not there.
    """

    def __init__(
        self,
        layers: Sequence[LayerShape],
        groups: Sequence[GroupConfig],
        page_size: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> None:
        self.device = device or torch.device("cpu")
        by_window = {group.window: index for index, group in enumerate(groups)}
        self._group_of = [by_window[layer.window] for layer in layers]
        self._groups = tuple(groups)
        self._page_size = page_size
        self.unit = unit_size(page_size)
        shapes = [
            (layer.kv_heads, (groups[group].num_pages + 1) * page_size, layer.head_dim)
            for layer, group in zip(layers, self._group_of, strict=True)
        ]
        _refuse_beyond_memory(shapes, dtype, self.device)
        if self.device.type == "cpu":
            rows = _lazy_zeros([*shapes, *shapes], dtype)
        else:
            both = [*shapes, *shapes]
            rows = [torch.zeros(shape, dtype=dtype, device=self.device) for shape in both]
        self._keys, self._values = rows[: len(shapes)], rows[len(shapes) :]
        self._slots: list[Tensor] = []

    @property
    def trash_tables(self) -> tuple[tuple[int], ...]:
        """For each group the block table of a padding row: the page behind the pool's last."""
        return tuple((group.num_pages,) for group in self._groups)

    @property
    def bytes_per_token(self) -> int:
        """Memory of one token's keys and values: 2 * layers * kv_heads * head_dim * bytes."""
        return sum(2 * k.shape[0] * k.shape[2] * k.element_size() for k in self._keys)

    def group_of(self, layer: int) -> int:
        """The page group of a layer."""
        return self._group_of[layer]

    def slots_of(self, layer: int) -> Tensor:
        """Where this step's rows of a layer go: [rows]."""
        return self._slots[self._group_of[layer]]

    def begin_step(self, slots: Sequence[Sequence[int]]) -> None:
        """Say where the step's rows go in each group. Called once, before the model runs."""
        self._slots = [torch.tensor(of_group).to(self.device) for of_group in slots]

    def begin_decodes(self, slots: Sequence[Tensor]) -> None:
        """The same with tensors whose contents may still change: one [rows] for each group."""
        self._slots = list(slots)

    def put(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Write the step's rows of one layer. Both: [kv_heads, rows, head_dim]."""
        slots = self.slots_of(layer)
        for cache, rows in ((self._keys[layer], keys), (self._values[layer], values)):
            if cache.device.type == "cpu" and cache.dtype is torch.float32:
                cpu_kernels.store_rows(cache.numpy(), slots.numpy(), rows.numpy())
            else:
                cache.index_copy_(1, slots, rows)

    def put_at(self, layer: int, slot: int, key: Tensor, value: Tensor) -> None:
        """Write one row of one layer. Both: [kv_heads, head_dim]."""
        self._keys[layer][:, slot] = key
        self._values[layer][:, slot] = value

    def rows(self, layer: int) -> tuple[Tensor, Tensor]:
        """All keys and values of a layer by cache slot. Each: [kv_heads, slots, head_dim]."""
        return self._keys[layer], self._values[layer]

    def gather(self, layer: int, units: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of cache units. units: [n] -> two tensors [kv_heads, n * unit, head_dim]."""
        return self._take(self._keys[layer], units), self._take(self._values[layer], units)

    def _take(self, rows: Tensor, units: Tensor) -> Tensor:
        kv_heads, _, head_dim = rows.shape
        by_unit = rows.view(kv_heads, -1, self.unit * head_dim)
        return by_unit.index_select(1, units).view(kv_heads, -1, head_dim)

    def copy_page(self, group: int, source: int, destination: int) -> None:
        """Copy a whole page in every layer of the group."""
        for rows in self._rows_of(group):
            rows[:, self._span(destination)] = rows[:, self._span(source)]

    def fill_page(self, group: int, page: int, value: float) -> None:
        """Overwrite a page in every layer of the group: zero before use, NaN after it to debug."""
        for rows in self._rows_of(group):
            rows[:, self._span(page)] = value

    def _rows_of(self, group: int) -> Iterator[Tensor]:
        for layer, of_layer in enumerate(self._group_of):
            if of_layer == group:
                yield self._keys[layer]
                yield self._values[layer]

    def _span(self, page: int) -> slice:
        return slice(page * self._page_size, (page + 1) * self._page_size)


def _refuse_beyond_memory(
    shapes: Sequence[tuple[int, int, int]], dtype: torch.dtype, device: torch.device
) -> None:
    needed = 2 * sum(math.prod(shape) for shape in shapes) * dtype.itemsize
    if device.type == "cuda":
        there = torch.cuda.mem_get_info(device)[0]
    else:
        there = psutil.virtual_memory().available
    if needed > there:
        raise CacheTooLarge(
            f"the key and value cache would take {needed / 2**30:.1f} GiB, but only "
            f"{there / 2**30:.1f} GiB of memory are free; lower num_pages"
        )


def _lazy_zeros(shapes: Sequence[tuple[int, int, int]], dtype: torch.dtype) -> list[Tensor]:
    """Zeros that take memory as they are written to, in the system's small pages.

    Every layer and head has a range of its own, of which a short run touches the beginning: on huge
    pages each first token would clear two megabytes. The mapping is shared, so `use_huge_pages`
    passes it by.
    """
    sizes = [math.prod(shape) for shape in shapes]
    memory = mmap.mmap(-1, max(1, sum(sizes) * dtype.itemsize))
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    flat = torch.frombuffer(memory, dtype=dtype, count=sum(sizes))
    return [part.view(shape) for part, shape in zip(torch.split(flat, sizes), shapes, strict=True)]


class StepKeys:
    """A cache that forgets: the keys of this very step, for one sequence that starts at 0.

    What `solo` uses. Positions are slots, and the tail of the last page of ``page_size`` tokens, a
    multiple of the key block, is zero.
    """

    def __init__(self, layers: int, page_size: int = KEY_BLOCK) -> None:
        self._page_size = page_size
        self._rows: list[tuple[Tensor, Tensor] | None] = [None] * layers

    def group_of(self, layer: int) -> int:
        """All layers are in one group here."""
        return 0

    def put(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Keep one layer's rows until they are gathered."""
        self._rows[layer] = (self._whole_pages(keys), self._whole_pages(values))

    def rows(self, layer: int) -> tuple[Tensor, Tensor]:
        """All keys and values of a layer by position, with a tail of zeros."""
        rows = self._rows[layer]
        assert rows is not None  # noqa: S101
        return rows

    def gather(self, layer: int, units: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of blocks (a unit is a whole key block here)."""
        keys, values = (_take_blocks(x, units) for x in self.rows(layer))
        return keys, values

    def _whole_pages(self, x: Tensor) -> Tensor:
        missing = padded(x.shape[1], self._page_size) - x.shape[1]
        return torch.nn.functional.pad(x, (0, 0, 0, missing)).contiguous()


def _take_blocks(rows: Tensor, blocks: Tensor) -> Tensor:
    kv_heads, _, head_dim = rows.shape
    by_block = rows.view(kv_heads, -1, KEY_BLOCK * head_dim)
    return by_block.index_select(1, blocks).view(kv_heads, -1, head_dim)
