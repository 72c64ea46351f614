"""Large memory on huge pages: weights are read once a step, and small pages cost a fifth of that.

The allocators of torch and oneDNN leave the page size to the system, which by default gives huge
pages only to those who ask. Asking changes where numbers lie, never the numbers.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HUGE_PAGE_BYTES: Final = 1 << 21
_MADV_HUGEPAGE: Final = 14
_MADV_COLLAPSE: Final = 25
_ANONYMOUS: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ 00:00 0\s*(\[heap\])?$")


def use_huge_pages() -> int:
    """Move this process's large anonymous regions to huge pages; returns the bytes asked for.

    Linux only, best effort: elsewhere, and where the kernel declines, nothing changes. Memory that
    was freed but kept by the C library is given back first.
    """
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    asked = 0
    for start, length in _large_regions():
        address, size = ctypes.c_void_p(start), ctypes.c_size_t(length)
        if libc.madvise(address, size, _MADV_HUGEPAGE) == 0:
            for at in range(start, start + length, HUGE_PAGE_BYTES):  # now, not some time
                page = ctypes.c_void_p(at), ctypes.c_size_t(HUGE_PAGE_BYTES)
                libc.madvise(*page, _MADV_COLLAPSE)
            asked += length
    return asked


def _large_regions() -> Iterator[tuple[int, int]]:
    """Start and length, in whole huge pages, of the private anonymous regions."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        found = _ANONYMOUS.match(line)
        if found is None:
            continue
        first = -(-int(found[1], 16) // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
        last = int(found[2], 16) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        if last > first:
            yield first, last - first
