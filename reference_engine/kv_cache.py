"""Which sequence holds which pages, in every page group, and what can be shared between them."""

from __future__ import annotations

from collections.abc import Sequence

from reference_engine.page_group import GroupConfig, PageGroup, PageNews
from reference_engine.page_pool import NULL_PAGE
from reference_engine.prefix_index import PrefixIndex
from reference_engine.sequence import Sequence as LiveSequence

Prefix = tuple[tuple[int, ...], ...]
"""A cached prefix: for each group the pages of the prefix, `NULL_PAGE` where not needed."""


class SequencePages:
    """Gives sequences their pages, shares what is equal, and takes them back.

    ``chunk_tokens``: how many tokens a step computes of one sequence at most.
    """

    def __init__(
        self,
        groups: Sequence[GroupConfig],
        page_size: int,
        *,
        chunk_tokens: int,
        prefix_caching: bool = True,
    ) -> None:
        self.groups = tuple(PageGroup(i, g, page_size) for i, g in enumerate(groups))
        self.page_size = page_size
        self.chunk_tokens = chunk_tokens
        self.prefix_caching = prefix_caching
        self.prefix_hit_tokens = 0
        self.prefix_query_tokens = 0
        self._digests: dict[LiveSequence, list[bytes]] = {}

    def root_digest(self, salt: str | None) -> bytes:
        """See `PrefixIndex.root`."""
        return PrefixIndex.root(salt)

    def digest(self, parent: bytes, tokens: Sequence[int]) -> bytes:
        """See `PrefixIndex.chain`."""
        return PrefixIndex.chain(parent, tokens)

    def can_ever_hold(self, tokens: int) -> bool:
        """Whether a sequence of so many tokens fits the empty pools."""
        return all(g.most_held(tokens, self.chunk_tokens) < g.pool.num_pages for g in self.groups)

    def missing(self, sequence: LiveSequence) -> tuple[int, ...]:
        """For each group, pages that the known tokens will need beyond those held."""
        tables = sequence.block_tables or [[] for _ in self.groups]
        return tuple(
            max(0, g.most_held(len(sequence.tokens), self.chunk_tokens) - g.held(table))
            for g, table in zip(self.groups, tables, strict=True)
        )

    def news(self) -> list[PageNews]:
        """What changed since the last call; in order for each group."""
        news: list[PageNews] = []
        for group in self.groups:
            news += group.news
            group.news = []
        return news

    def cached_prefix(self, sequence: LiveSequence) -> Prefix:
        """The longest start of the sequence that every group can continue from.

        At most ``len(tokens) - 1`` tokens: the last one must be computed, or there are no logits.
        A request that wants prompt logprobs needs the logits of all positions and hits nothing.
        """
        wants_all = sequence.request.params.prompt_logprobs is not None
        if not self.prefix_caching or (wants_all and sequence.output_tokens == 0):
            return ((),) * len(self.groups)
        found = self._find_pages(sequence)
        usable = [g.usable_prefix(pages) for g, pages in zip(self.groups, found, strict=True)]
        length = max(k for k in range(len(usable[0])) if all(of_group[k] for of_group in usable))
        return tuple(
            tuple(
                page if page is not None and i >= g.first_needed(length * self.page_size) else 0
                for i, page in enumerate(pages[:length])
            )
            for g, pages in zip(self.groups, found, strict=True)
        )

    def fits(self, sequence: LiveSequence, prefix: Prefix, spare: Sequence[int]) -> bool:
        """Whether all known tokens can be held after `attach(prefix)`, with pages to spare."""
        for group, pages, extra in zip(self.groups, prefix, spare, strict=True):
            held = [page for page in pages if page != NULL_PAGE]
            revived = sum(1 for page in held if group.pool.references(page) == 0)
            wanted = group.most_held(len(sequence.tokens), self.chunk_tokens) - len(held)
            if max(0, wanted) + revived + extra > group.pool.available:
                return False
        return True

    def attach(self, sequence: LiveSequence, prefix: Prefix) -> None:
        """Start the sequence on pages that hold its first tokens."""
        for group, pages in zip(self.groups, prefix, strict=True):
            group.share(pages)
        sequence.block_tables = [list(pages) for pages in prefix]
        sequence.computed = len(prefix[0]) * self.page_size
        if sequence.cached_tokens is None:
            sequence.cached_tokens = sequence.computed
        self.prefix_hit_tokens += sequence.computed
        self.prefix_query_tokens += len(sequence.tokens)

    def grow(self, sequence: LiveSequence, tokens: int) -> bool:
        """Make room for the first ``tokens`` tokens; False, and nothing done, if pages lack."""
        computed = sequence.computed
        pairs = list(zip(self.groups, sequence.block_tables, strict=True))
        if any(group.lacks(table, computed, tokens) > 0 for group, table in pairs):
            return False
        for group, table in pairs:
            group.extend(table, computed, tokens)
        return True

    def fork(self, parent: LiveSequence, child: LiveSequence) -> None:
        """Let ``child`` start with all the pages of ``parent``, the partly filled one included."""
        for group, table in zip(self.groups, parent.block_tables, strict=True):
            group.share(table)
        child.block_tables = [list(table) for table in parent.block_tables]
        child.computed = parent.computed
        child.cached_tokens = parent.cached_tokens

    def register(self, sequence: LiveSequence) -> None:
        """Offer full pages to the prefix cache, after the step that filled them."""
        if not self.prefix_caching:
            return
        digests = self._digests.setdefault(
            sequence, [self.root_digest(sequence.request.cache_salt)]
        )
        for index in range(len(digests) - 1, sequence.computed // self.page_size):
            tokens = self._page_tokens(sequence, index)
            digests.append(self.digest(digests[-1], tokens))
            for group, table in zip(self.groups, sequence.block_tables, strict=True):
                if table[index] != NULL_PAGE:
                    group.pool.prefixes.add(table[index], digests[-1], tokens)

    def release(self, sequence: LiveSequence) -> None:
        """Take all pages back; what was computed is lost unless the prefix cache knows it.

        The last page goes first: it is evicted first, and a prefix without its tail is still one.
        """
        for group, table in zip(self.groups, sequence.block_tables, strict=False):
            group.give_back(table[::-1])
        sequence.block_tables = []
        sequence.computed = 0
        self._digests.pop(sequence, None)

    def _find_pages(self, sequence: LiveSequence) -> list[list[int | None]]:
        """For each group, the cached page of each full page, as far as any group may use it."""
        found: list[list[int | None]] = [[] for _ in self.groups]
        digest = self.root_digest(sequence.request.cache_salt)
        for index in range((len(sequence.tokens) - 1) // self.page_size):
            tokens = self._page_tokens(sequence, index)
            digest = self.digest(digest, tokens)
            pages = [g.pool.prefixes.find(digest, tokens) for g in self.groups]
            unusable = [
                page is None and g.window is None
                for g, page in zip(self.groups, pages, strict=True)
            ]
            if any(unusable):
                break
            for of_group, page in zip(found, pages, strict=True):
                of_group.append(page)
        return found

    def _page_tokens(self, sequence: LiveSequence, index: int) -> list[int]:
        return sequence.tokens[index * self.page_size : (index + 1) * self.page_size]
