"""The prefix index: finds a page by everything that its keys and values depend on."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass


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
