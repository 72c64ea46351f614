"""Seeded randomness: one independent stream for each purpose, the same on every machine.

Python promises that ``random.Random(seed).random()`` never changes between versions; all draws
are built from it. Streams are keyed by name, so drawing more lengths does not move the arrivals.
"""

from __future__ import annotations

import random


def stream(seed: int, purpose: str) -> random.Random:
    """The stream of draws for one purpose of one seed."""
    return random.Random(f"isobatch/{seed}/{purpose}")
