"""From a batch's metadata to a few large calls: query tiles, key blocks and what each may see.

Tiles of equal size are computed together, whatever request they belong to: sixteen decoding
requests are one call, not sixteen. The plan is made once a step and used by every layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reference_engine.batch import BatchSequence, RaggedBatch
from reference_engine.numerics import KEY_BLOCK

Ints = NDArray[np.int64]

TILE_TOKENS: Final = (1, 8, 64)
"""Tile sizes in tokens: decode rows use 1, chunks the larger ones, padded up with a copy of their
last token. More sizes mean less padding and more calls."""

MAX_BLOCK_TOKENS: Final = 1 << 14
"""A call covers at most so many (block, token) pairs, which bounds its memory."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Consecutive tokens of one sequence, and the key blocks that any of them can see."""

    first_row: int
    start: int
    count: int
    block_table: Sequence[int]
    first_block: int
    blocks: int


@dataclass(frozen=True, slots=True)
class TileCall:
    """The index tensors of one call of `numerics.block_attention`.

    rows: [tiles, tokens] batch rows; units: [blocks * units_per_block] cache units to gather;
    hidden: [blocks, tokens, KEY_BLOCK]; tile_of_block: [blocks]. ``kept`` are the places of the
    flattened rows that are no padding, ``kept_rows`` the batch rows they are.
    """

    rows: Tensor
    units: Tensor
    hidden: Tensor
    tile_of_block: Tensor
    blocks_at_rank: tuple[int, ...]
    kept: Tensor
    kept_rows: Tensor


def unit_size(page_size: int) -> int:
    """Slots that lie together in the cache whatever the block table says: what is gathered."""
    return math.gcd(page_size, KEY_BLOCK)


def plan_attention(batch: RaggedBatch, window: int | None = None, group: int = 0) -> list[TileCall]:
    """The calls that compute attention for every row of ``batch``.

    ``window`` is the layer's sliding window, ``group`` its page group.
    """
    by_size: dict[int, list[Tile]] = {}
    for first_row, sequence in zip(batch.cu_seqlens, batch.sequences, strict=False):
        for tile in _tiles(sequence, first_row, window, group):
            size = next(s for s in TILE_TOKENS if s >= tile.count)
            by_size.setdefault(size, []).append(tile)
    return [
        _call(bounded, size, batch.page_size, window)
        for size, tiles in by_size.items()
        for bounded in _bounded(tiles, size)
    ]


def _tiles(
    sequence: BatchSequence, first_row: int, window: int | None, group: int
) -> Iterator[Tile]:
    largest = TILE_TOKENS[-1]
    for offset in range(0, sequence.count, largest):
        start = sequence.start + offset
        count = min(largest, sequence.count - offset)
        lowest = 0 if window is None else max(0, start - window + 1)
        first_block, last_block = lowest // KEY_BLOCK, (start + count - 1) // KEY_BLOCK
        yield Tile(
            first_row=first_row + offset,
            start=start,
            count=count,
            block_table=sequence.block_tables[group],
            first_block=first_block,
            blocks=last_block - first_block + 1,
        )


def _bounded(tiles: list[Tile], size: int) -> Iterator[list[Tile]]:
    """Groups of tiles, longest contexts first, each within ``MAX_BLOCK_TOKENS``."""
    group: list[Tile] = []
    cost = 0
    for tile in sorted(tiles, key=lambda t: -t.blocks):
        if group and cost + tile.blocks * size > MAX_BLOCK_TOKENS:
            yield group
            group, cost = [], 0
        group.append(tile)
        cost += tile.blocks * size
    yield group


def _call(tiles: list[Tile], size: int, page_size: int, window: int | None) -> TileCall:
    blocks_of = np.array([t.blocks for t in tiles])
    blocks_at_rank = [int(np.count_nonzero(blocks_of > r)) for r in range(int(blocks_of[0]))]
    tile_of_block = np.concatenate([np.arange(n) for n in blocks_at_rank])
    rank = np.repeat(np.arange(len(blocks_at_rank)), blocks_at_rank)
    block = np.array([t.first_block for t in tiles])[tile_of_block] + rank

    counts = np.array([t.count for t in tiles])
    offsets = np.minimum(np.arange(size)[None, :], counts[:, None] - 1)
    rows = np.array([t.first_row for t in tiles])[:, None] + offsets
    at = (np.array([t.start for t in tiles])[:, None] + offsets)[tile_of_block][:, :, None]
    key_at = (block[:, None] * KEY_BLOCK + np.arange(KEY_BLOCK)[None, :])[:, None, :]
    hidden = key_at > at
    if window is not None:
        hidden |= key_at <= at - window

    kept = np.flatnonzero((np.arange(size)[None, :] < counts[:, None]).reshape(-1))
    return TileCall(
        rows=torch.from_numpy(rows),
        units=torch.from_numpy(_units(tiles, tile_of_block, block, page_size)),
        hidden=torch.from_numpy(hidden),
        tile_of_block=torch.from_numpy(tile_of_block),
        blocks_at_rank=tuple(blocks_at_rank),
        kept=torch.from_numpy(kept),
        kept_rows=torch.from_numpy(rows.reshape(-1)[kept]),
    )


def _units(tiles: list[Tile], tile_of_block: Ints, block: Ints, page_size: int) -> Ints:
    """Cache units of every block, in order; past the end of a block table the null page's."""
    unit = unit_size(page_size)
    per_page, per_block = page_size // unit, KEY_BLOCK // unit
    pages_needed = (int(block.max()) + 1) * per_block // per_page + 1
    tables = np.zeros((len(tiles), pages_needed), dtype=np.int64)
    for index, tile in enumerate(tiles):
        known = tile.block_table[:pages_needed]
        tables[index, : len(known)] = known
    position_unit = block[:, None] * per_block + np.arange(per_block)[None, :]
    pages = tables[tile_of_block[:, None], position_unit // per_page]
    units: Ints = (pages * per_page + position_unit % per_page).reshape(-1)
    return units
