"""The memory behind the page numbers: keys and values of every layer, in pages."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from reference_engine.attention.plan import unit_size
from reference_engine.numerics import KEY_BLOCK, padded


class PagedStore:
    """Keys and values of all layers in fixed pages; page 0 is the null page, always zero.

    Each layer's tensor is [kv_heads, pages * page_size, head_dim]: the tokens of a page lie
    together for each head, so a block of keys is gathered in runs of `unit_size` tokens.
    """

    def __init__(
        self,
        *,
        layers: int,
        kv_heads: int,
        head_dim: int,
        num_pages: int,
        page_size: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        shape = (layers, kv_heads, num_pages * page_size, head_dim)
        self._keys = torch.zeros(shape, dtype=dtype)
        self._values = torch.zeros(shape, dtype=dtype)
        self._page_size = page_size
        self.unit = unit_size(page_size)
        self.slots = torch.empty(0, dtype=torch.long)

    @property
    def page_bytes(self) -> int:
        """Memory of one page over all layers."""
        layers, kv_heads, _, head_dim = self._keys.shape
        return 2 * layers * kv_heads * head_dim * self._keys.element_size() * self._page_size

    @property
    def slots_total(self) -> int:
        """Tokens that all pages together hold, the null page included."""
        return self._keys.shape[2]

    def begin_step(self, slots: Sequence[int]) -> None:
        """Say where the step's rows go. Called once, before the model runs."""
        self.slots = torch.tensor(slots)

    def put(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Write the step's rows of one layer. Both: [kv_heads, rows, head_dim]."""
        self._keys[layer].index_copy_(1, self.slots, keys)
        self._values[layer].index_copy_(1, self.slots, values)

    def put_at(self, layer: int, slot: int, key: Tensor, value: Tensor) -> None:
        """Write one row of one layer. Both: [kv_heads, head_dim]."""
        self._keys[layer, :, slot] = key
        self._values[layer, :, slot] = value

    def gather(self, layer: int, units: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of cache units. units: [n] -> two tensors [kv_heads, n * unit, head_dim]."""
        return self._take(self._keys[layer], units), self._take(self._values[layer], units)

    def _take(self, rows: Tensor, units: Tensor) -> Tensor:
        kv_heads, _, head_dim = rows.shape
        by_unit = rows.view(kv_heads, -1, self.unit * head_dim)
        return by_unit.index_select(1, units).view(kv_heads, -1, head_dim)

    def copy_page(self, source: int, destination: int) -> None:
        """Copy a whole page in every layer."""
        for rows in (self._keys, self._values):
            rows[:, :, self._span(destination)] = rows[:, :, self._span(source)]

    def fill_page(self, page: int, value: float) -> None:
        """Overwrite a page in every layer: zero before use, NaN after it in debug mode."""
        for rows in (self._keys, self._values):
            rows[:, :, self._span(page)] = value

    def _span(self, page: int) -> slice:
        return slice(page * self._page_size, (page + 1) * self._page_size)


class StepKeys:
    """A cache that forgets: the keys of this very step, for one sequence that starts at 0.

    What `solo` uses. Positions are slots, and the tail of the last key block is zero.
    """

    def __init__(self, layers: int) -> None:
        self._rows: list[tuple[Tensor, Tensor] | None] = [None] * layers

    def put(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Keep one layer's rows until they are gathered."""
        self._rows[layer] = (_pad_to_block(keys), _pad_to_block(values))

    def gather(self, layer: int, units: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of blocks (a unit is a whole key block here)."""
        rows = self._rows[layer]
        assert rows is not None  # noqa: S101
        keys, values = (_take_blocks(x, units) for x in rows)
        return keys, values


def _take_blocks(rows: Tensor, blocks: Tensor) -> Tensor:
    kv_heads, _, head_dim = rows.shape
    by_block = rows.view(kv_heads, -1, KEY_BLOCK * head_dim)
    return by_block.index_select(1, blocks).view(kv_heads, -1, head_dim)


def _pad_to_block(x: Tensor) -> Tensor:
    missing = padded(x.shape[1], KEY_BLOCK) - x.shape[1]
    return torch.nn.functional.pad(x, (0, 0, 0, missing)).contiguous()
