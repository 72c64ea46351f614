"""Ids of answers. They are unique among live requests, whatever the client calls its own."""

from __future__ import annotations

import itertools
import secrets


class ResponseIds:
    """Gives out ids and knows which are in use.

    A client may name a request (``X-Request-Id`` or ``request_id``), and two clients may choose the
    same name at the same time. Each still gets an answer of its own under an id of its own.
    """

    def __init__(self) -> None:
        self._live: set[str] = set()
        self._numbers = itertools.count(2)

    def take(self, prefix: str, client_id: str | None = None) -> str:
        """A new id, ``prefix-client_id`` where that is free. Give it back with `release`."""
        wanted = f"{prefix}-{client_id or secrets.token_hex(12)}"
        unique = wanted
        while unique in self._live:
            unique = f"{wanted}-{next(self._numbers)}"
        self._live.add(unique)
        return unique

    @property
    def live(self) -> int:
        """How many ids are in use: the number of requests that are being answered."""
        return len(self._live)

    def release(self, response_id: str) -> None:
        """The request has ended."""
        self._live.discard(response_id)
