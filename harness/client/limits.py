"""How long and how much the client puts up with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits in seconds and size limits in bytes of one request.

    ``first_token_s`` counts from the first byte sent to the first token-bearing event of a
    stream. ``idle_s`` is the longest silence after it. ``total_s`` ends any request. The size
    limits keep a hostile server from filling the client's memory.
    """

    connect_s: float = 10.0
    first_token_s: float = 180.0
    idle_s: float = 60.0
    total_s: float = 600.0
    header_bytes: int = 256 * 1024
    line_bytes: int = 32 * 1024 * 1024
    body_bytes: int = 256 * 1024 * 1024

    @property
    def tick_s(self) -> float:
        """How often limits are looked at: often enough for the shortest of them."""
        shortest = min(self.connect_s, self.first_token_s, self.idle_s, self.total_s)
        return min(0.25, max(0.01, shortest / 5))
