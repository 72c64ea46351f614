"""What one server accepts and how long it waits: every bound in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on requests, buffers and waiting times. Each one has a reason to exist.

    ``max_body_bytes``: a larger body gets 413. ``max_live_requests``: engine requests queued or
    running; one more gets 429. ``max_prompts`` and ``max_choices`` bound the fan-out of one body.
    ``max_pending_events``: token events that wait for one slow reader; past it the request is
    cancelled and its connection closed, so a reader that stops reading costs bounded memory.
    ``write_stall_s``: how long one write may wait for such a reader. ``body_timeout_s``: how long a
    body may take to arrive; ``idle_timeout_s``: how long a connection may sit without a complete
    request header, which also ends slow-loris headers. ``drain_s``: how long SIGTERM waits for
    running requests.
    """

    max_body_bytes: int = 4 * 1024 * 1024
    max_live_requests: int = 4096
    max_prompts: int = 256
    max_choices: int = 16
    max_logprobs: int = 20
    max_pending_events: int = 8192
    write_stall_s: float = 30.0
    body_timeout_s: float = 30.0
    idle_timeout_s: float = 60.0
    drain_s: float = 30.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
