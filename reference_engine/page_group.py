"""The pages of the layers that need the same ones: all that see everything, or one window size.

A layer with a sliding window of ``w`` never reads a key that lies ``w`` or more positions back.
Such layers have a page pool of their own, in which a sequence gives up its oldest pages as it
advances, and holds a bounded number however long it grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from reference_engine.page_pool import NULL_PAGE, PagePool


class PageAction(Enum):
    """What the memory must do with a page."""

    CLEAR = "clear"  # given out: no trace of the last owner may be read
    COPY = "copy"  # copy on write
    FREE = "free"  # nobody's any more: debug mode fills it with NaN


@dataclass(frozen=True, slots=True)
class PageNews:
    """One change, to be carried out in order before the next step. ``source`` is set for COPY."""

    action: PageAction
    group: int
    page: int
    source: int | None = None


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """``window``: how many positions the group's layers see, the token's own included (None: all).

    ``num_pages``: pages in the pool, the null page included.
    """

    num_pages: int
    window: int | None = None


class PageGroup:
    """One page pool and the arithmetic of which pages a sequence needs from it.

    Block tables are lists of page numbers by position; a window group has `NULL_PAGE` where the
    window has passed.
    """

    def __init__(self, index: int, config: GroupConfig, page_size: int) -> None:
        self.index = index
        self.window = config.window
        self.page_size = page_size
        self.pool = PagePool(config.num_pages)
        self.news: list[PageNews] = []

    def pages_for(self, tokens: int) -> int:
        """Pages that so many tokens fill, the last one perhaps partly."""
        return -(-tokens // self.page_size)

    def first_needed(self, computed: int) -> int:
        """Index of the first page that the token at position ``computed`` or a later one reads."""
        if self.window is None:
            return 0
        return max(0, computed - self.window + 1) // self.page_size

    def most_held(self, tokens: int, chunk: int) -> int:
        """Pages that a sequence of ``tokens`` holds at once at most, in chunks of ``chunk``."""
        if self.window is None:
            return self.pages_for(tokens)
        return min(self.pages_for(tokens), self.pages_for(self.window - 1 + chunk) + 1)

    def held(self, table: Sequence[int]) -> int:
        """Pages of a block table that are really there."""
        return len(table) if self.window is None else len(table) - table.count(NULL_PAGE)

    def lacks(self, table: Sequence[int], computed: int, tokens: int) -> int:
        """Pages that `extend` would take beyond those available; 0 or less if it can."""
        missing = max(0, self.pages_for(tokens) - len(table))
        passed = sum(
            1
            for page in table[: self.first_needed(computed)]
            if page != NULL_PAGE and self.pool.references(page) == 1
        )
        copied = self.shared_at(table, computed) is not None
        return missing + copied - passed - self.pool.available

    def extend(self, table: list[int], computed: int, tokens: int) -> None:
        """Let ``table`` cover ``tokens`` tokens, the first ``computed`` of which are there.

        Pages that the window has passed are given back. The page that is written next is made
        the sequence's own: one that another sequence reads too is copied first (copy on write).
        """
        self._slide(table, computed)
        source = self.shared_at(table, computed)
        if source is not None:
            [copy] = self.pool.take(1)
            self.news.append(PageNews(PageAction.COPY, self.index, copy, source))
            self.give_back([source])
            table[computed // self.page_size] = copy
        missing = self.pages_for(tokens) - len(table)
        if missing > 0:
            fresh = self.pool.take(missing)
            self.news += [PageNews(PageAction.CLEAR, self.index, page) for page in fresh]
            table += fresh

    def share(self, pages: Sequence[int]) -> None:
        """Another sequence starts to hold these pages."""
        self.pool.share(page for page in pages if page != NULL_PAGE)

    def give_back(self, pages: Sequence[int]) -> None:
        """A sequence stops holding these pages; list the last one first."""
        freed = self.pool.give_back(page for page in pages if page != NULL_PAGE)
        self.news += [PageNews(PageAction.FREE, self.index, page) for page in freed]

    def usable_prefix(self, found: Sequence[int | None]) -> list[bool]:
        """For each length of a cached prefix in pages, whether this group can continue from it.

        ``found``: the cached page of each page of the prefix. A prefix of ``k`` pages needs those
        that the token after it reads: all of them, or the last few.
        """
        usable, unbroken = [True], 0
        for length, page in enumerate(found, 1):
            unbroken = unbroken + 1 if page is not None else 0
            usable.append(unbroken >= length - self.first_needed(length * self.page_size))
        return usable

    def _slide(self, table: list[int], computed: int) -> None:
        for index in range(self.first_needed(computed) - 1, -1, -1):
            if index >= len(table):
                continue
            if table[index] == NULL_PAGE:
                break
            self.give_back([table[index]])
            table[index] = NULL_PAGE

    def shared_at(self, table: Sequence[int], computed: int) -> int | None:
        """The page that the next token is written to, if somebody else reads it too."""
        index = computed // self.page_size
        if index >= len(table) or self.pool.references(table[index]) < 2:
            return None
        return table[index]
