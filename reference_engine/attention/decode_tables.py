"""The metadata of a step of decodes in tensors of fixed shape, as a captured graph needs it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class DecodeTables:
    """One row a sequence: row ``r`` is at ``positions[r]`` and sees that position and all before.

    rows: [rows], 0, 1, ...; positions: [rows]; block_tables: one [rows, pages] for each page group,
    the pages of a row in order of position, then null pages. All int32 and on the device; their
    contents change from step to step, their addresses and shapes never.
    """

    rows: Tensor
    positions: Tensor
    block_tables: tuple[Tensor, ...]
    page_size: int

    @property
    def num_tokens(self) -> int:
        """Rows, those of padding included."""
        return self.rows.shape[0]

    @classmethod
    def empty(
        cls, rows: int, widths: tuple[int, ...], page_size: int, device: torch.device
    ) -> DecodeTables:
        """Tables for ``rows`` rows, with so many pages in each group; all zero."""

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        return cls(
            torch.arange(rows, dtype=torch.int32, device=device),
            zeros(rows),
            tuple(zeros(rows, width) for width in widths),
            page_size,
        )
