"""The page pool: who holds which page, and which pages are worth keeping.

Pure bookkeeping on integers; the memory itself is `kv_store.PagedStore`. A page is in exactly one
of three states:

- *free*: nobody's, contents worthless;
- *used*: in the block table of at least one sequence (the reference count says how many);
- *cached*: in no block table, but its contents are known under a prefix digest and may be used
  again. Cached pages are given out, least recently used first, once no page is free.

Page 0 is the null page. It is never given out; block tables have it where a page is not needed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from reference_engine.prefix_index import PrefixIndex

NULL_PAGE: Final = 0


class PagePool:
    """Hands out pages and counts who holds them."""

    def __init__(self, num_pages: int) -> None:
        if num_pages < 2:
            raise ValueError("a page pool needs at least two pages: the null page and one to use")
        self.num_pages = num_pages
        self._free: list[int] = list(range(num_pages - 1, NULL_PAGE, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._references = [0] * num_pages
        self.prefixes = PrefixIndex()
        self.evictions = 0

    @property
    def free(self) -> int:
        """Pages that hold nothing."""
        return len(self._free)

    @property
    def cached(self) -> int:
        """Pages that only the prefix cache knows."""
        return len(self._cached)

    @property
    def used(self) -> int:
        """Pages in block tables."""
        return self.num_pages - 1 - self.free - self.cached

    @property
    def available(self) -> int:
        """Pages that `take` can give."""
        return self.free + self.cached

    def references(self, page: int) -> int:
        """How many block tables hold the page."""
        return self._references[page]

    def take(self, count: int) -> list[int]:
        """Give out ``count`` pages with one reference each; ValueError if there are fewer."""
        if count > self.available:
            raise ValueError(f"{count} pages wanted, {self.available} available")
        pages = []
        for _ in range(count):
            if self._free:
                page = self._free.pop()
            else:
                page, _nothing = self._cached.popitem(last=False)
                self.prefixes.forget(page)
                self.evictions += 1
            self._references[page] = 1
            pages.append(page)
        return pages

    def share(self, pages: Iterable[int]) -> None:
        """Add a reference to each page, which is used or cached."""
        for page in pages:
            self._cached.pop(page, None)
            self._references[page] += 1

    def give_back(self, pages: Iterable[int]) -> list[int]:
        """Drop one reference of each page; returns the pages that became free.

        The last page of a sequence should come first: it is evicted first, and a prefix without
        its tail is still a prefix.
        """
        freed = []
        for page in pages:
            self._references[page] -= 1
            if self._references[page] > 0:
                continue
            if self.prefixes.knows(page):
                self._cached[page] = None
            else:
                self._free.append(page)
                freed.append(page)
        return freed
