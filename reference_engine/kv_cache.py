"""Which page holds what: reference counts, the prefix cache, and the pages of each sequence.

Pure bookkeeping on integers; the memory itself is `kv_store.PagedStore`. A page is in exactly one
of three states:

- *free*: nobody's, contents worthless;
- *used*: in the block table of at least one sequence (the reference count says how many);
- *cached*: in no block table, but its contents are known under a prefix digest and may be used
  again. Cached pages are given out, least recently used first, once no page is free.

Page 0 is the null page. It is never given out; block tables are padded with it.
"""

from __future__ import annotations

import hashlib
import struct
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from reference_engine.sequence import Sequence as LiveSequence

NULL_PAGE = 0


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


@dataclass(frozen=True, slots=True)
class _KnownPage:
    digest: bytes
    tokens: tuple[int, ...]


class PrefixIndex:
    """Finds a page by everything that its keys and values depend on.

    The digest of a full page covers its tokens, the digest of the page before it and, at the root,
    the cache salt. A hit compares the tokens too, so that a colliding digest is a miss.
    """

    def __init__(self) -> None:
        self._by_digest: dict[bytes, int] = {}
        self._known: dict[int, _KnownPage] = {}

    @staticmethod
    def root(salt: str | None) -> bytes:
        """The digest before the first page. No salt and the empty salt are different."""
        domain = b"\x00" if salt is None else b"\x01" + salt.encode()
        return hashlib.blake2b(domain, digest_size=16).digest()

    @staticmethod
    def chain(parent: bytes, tokens: Sequence[int]) -> bytes:
        """The digest of a page after ``parent``."""
        content = parent + struct.pack(f"<{len(tokens)}q", *tokens)
        return hashlib.blake2b(content, digest_size=16).digest()

    def find(self, digest: bytes, tokens: Sequence[int]) -> int | None:
        """The page with this digest and exactly these tokens."""
        page = self._by_digest.get(digest)
        if page is None or self._known[page].tokens != tuple(tokens):
            return None
        return page

    def add(self, page: int, digest: bytes, tokens: Sequence[int]) -> None:
        """Remember a page whose keys and values have all been computed; the first copy stays."""
        if digest not in self._by_digest:
            self._by_digest[digest] = page
            self._known[page] = _KnownPage(digest, tuple(tokens))

    def knows(self, page: int) -> bool:
        """Whether the page can be found."""
        return page in self._known

    def forget(self, page: int) -> None:
        """The page is about to be overwritten."""
        known = self._known.pop(page, None)
        if known is not None:
            del self._by_digest[known.digest]


class PageAction(Enum):
    """What the memory must do with a page."""

    CLEAR = "clear"  # given out: no trace of the last owner may be read
    COPY = "copy"  # copy on write
    FREE = "free"  # nobody's any more: debug mode fills it with NaN


@dataclass(frozen=True, slots=True)
class PageNews:
    """One change, to be carried out in order before the next step. ``source`` is set for COPY."""

    action: PageAction
    page: int
    source: int | None = None


class SequencePages:
    """Gives sequences their pages, shares what is equal, and takes them back."""

    def __init__(self, num_pages: int, page_size: int, *, prefix_caching: bool = True) -> None:
        self.pool = PagePool(num_pages)
        self.page_size = page_size
        self.prefix_caching = prefix_caching
        self.prefix_hit_tokens = 0
        self.prefix_query_tokens = 0
        self._news: list[PageNews] = []
        self._digests: dict[LiveSequence, list[bytes]] = {}

    def pages_for(self, tokens: int) -> int:
        """Pages that so many tokens fill, the last one perhaps partly."""
        return -(-tokens // self.page_size)

    def missing(self, sequence: LiveSequence) -> int:
        """Pages that the known tokens need beyond those the sequence has."""
        return self.pages_for(len(sequence.tokens)) - len(sequence.block_table)

    def news(self) -> list[PageNews]:
        """What changed since the last call, in order."""
        news, self._news = self._news, []
        return news

    def cached_prefix(self, sequence: LiveSequence) -> list[int]:
        """Pages that hold the start of the sequence already.

        At most ``len(tokens) - 1`` tokens: the last one must be computed, or there are no logits.
        A request that wants prompt logprobs needs the logits of all positions and hits nothing.
        """
        wants_all = sequence.request.params.prompt_logprobs is not None
        if not self.prefix_caching or (wants_all and sequence.output_tokens == 0):
            return []
        pages = []
        digest = self.pool.prefixes.root(sequence.request.cache_salt)
        size = self.page_size
        for start in range(0, len(sequence.tokens) - size, size):
            tokens = sequence.tokens[start : start + size]
            digest = self.pool.prefixes.chain(digest, tokens)
            page = self.pool.prefixes.find(digest, tokens)
            if page is None:
                break
            pages.append(page)
        return pages

    def fits(self, sequence: LiveSequence, prefix: Sequence[int], spare: int = 0) -> bool:
        """Whether all known tokens can be held now, after `attach(prefix)`, with pages to spare."""
        wanted = self.pages_for(len(sequence.tokens)) - len(prefix)
        revived = sum(1 for page in prefix if self.pool.references(page) == 0)
        return wanted + revived + spare <= self.pool.available

    def attach(self, sequence: LiveSequence, prefix: Sequence[int]) -> None:
        """Start the sequence on pages that hold its first tokens."""
        self.pool.share(prefix)
        sequence.block_table.extend(prefix)
        sequence.computed = len(prefix) * self.page_size
        sequence.cached_tokens = sequence.computed
        self.prefix_hit_tokens += sequence.computed
        self.prefix_query_tokens += len(sequence.tokens)

    def grow(self, sequence: LiveSequence, tokens: int) -> bool:
        """Make room for the first ``tokens`` tokens; False, and nothing done, if pages lack.

        The page that is written next is made the sequence's own: a page that another one reads
        too is copied first (copy on write).
        """
        missing = self.pages_for(tokens) - len(sequence.block_table)
        writes_at = sequence.computed // self.page_size
        shared = (
            writes_at < len(sequence.block_table)
            and self.pool.references(sequence.block_table[writes_at]) > 1
        )
        if missing + shared > self.pool.available:
            return False
        if shared:
            source = sequence.block_table[writes_at]
            [copy] = self.pool.take(1)
            self._news.append(PageNews(PageAction.COPY, copy, source))
            self.pool.give_back([source])
            sequence.block_table[writes_at] = copy
        if missing > 0:
            fresh = self.pool.take(missing)
            self._news.extend(PageNews(PageAction.CLEAR, page) for page in fresh)
            sequence.block_table.extend(fresh)
        return True

    def fork(self, parent: LiveSequence, child: LiveSequence) -> None:
        """Let ``child`` start with all the pages of ``parent``, the partly filled one included."""
        self.pool.share(parent.block_table)
        child.block_table.extend(parent.block_table)
        child.computed = parent.computed
        child.cached_tokens = parent.cached_tokens

    def register(self, sequence: LiveSequence) -> None:
        """Offer full pages to the prefix cache, after the step that filled them."""
        if not self.prefix_caching:
            return
        digests = self._digests.setdefault(
            sequence, [self.pool.prefixes.root(sequence.request.cache_salt)]
        )
        for index in range(len(digests) - 1, sequence.computed // self.page_size):
            start = index * self.page_size
            tokens = sequence.tokens[start : start + self.page_size]
            digests.append(self.pool.prefixes.chain(digests[-1], tokens))
            self.pool.prefixes.add(sequence.block_table[index], digests[-1], tokens)

    def release(self, sequence: LiveSequence) -> None:
        """Take all pages back; what was computed is lost unless the prefix cache knows it."""
        freed = self.pool.give_back(reversed(sequence.block_table))
        self._news.extend(PageNews(PageAction.FREE, page) for page in freed)
        sequence.block_table.clear()
        sequence.computed = 0
        self._digests.pop(sequence, None)
