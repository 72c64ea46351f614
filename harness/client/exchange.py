"""One HTTP exchange as the wire saw it: what was sent, what came back, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from harness.transcript import Ending

BodySink = Callable[[float, bytes], None]


class Exchange:
    """One request and the answer to it, filled in by the connection that carries it.

    ``sink`` gets each piece of a body with the time of the socket read that brought it. When
    nobody needs the pieces before the end, ``pieces`` is a list and they are only put there, with
    their times. ``done`` is set exactly once. ``failure`` is None if a whole HTTP answer arrived,
    whatever its status says.
    """

    __slots__ = (
        "body_bytes", "done", "ended_by_eof", "failure", "headers", "payload", "pieces", "sink",
        "status", "t_connect_s", "t_end_s", "t_last_read_s", "t_sent_s",
    )  # fmt: skip

    def __init__(self, payload: bytes, sink: BodySink) -> None:
        self.payload = payload
        self.sink = sink
        self.pieces: list[tuple[float, bytes]] | None = None
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body_bytes = 0
        self.t_connect_s: float | None = None
        self.t_sent_s: float | None = None
        self.t_last_read_s: float | None = None
        self.t_end_s: float | None = None
        self.ended_by_eof = False
        self.failure: tuple[Ending, str] | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def answered(self) -> bool:
        """Whether any byte came back."""
        return self.t_last_read_s is not None

    def finish(self, t_s: float) -> None:
        """The whole answer is here."""
        if not self.done.done():
            self.t_end_s = t_s
            self.done.set_result(None)

    def fail(self, t_s: float, ending: Ending, sentence: str) -> None:
        """It ended otherwise."""
        if not self.done.done():
            self.failure = (ending, sentence)
            self.finish(t_s)
