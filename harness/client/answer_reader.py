"""Reads the body of one answer, stream or document, into its transcript.

JSON is kept off the hot path: until the first token-bearing event a stream is read as it arrives,
since the first-token limit and live progress need it; from then on its bytes are only put into
``backlog`` with their times, and parsed by `catch_up` when nobody waits for the loop. A request
whose tokens somebody counts during the run (a cancel point, a trigger) is read as it arrives to
its end.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson

from harness.client.openai_answer import (
    MalformedAnswer,
    ServerReportedError,
    error_message,
    read_document,
)
from harness.client.plain_event import plain_chunk
from harness.client.sse import SseEvent, SseParser
from harness.transcript import Ending, RequestTranscript

DONE = "[DONE]"


class AnswerReader:
    """Bytes with times in, transcript out.

    ``eager`` says whether pieces are parsed as they come; if not, they may as well be appended to
    ``backlog`` directly. ``failure`` is what was wrong with the content.
    """

    __slots__ = (
        "_keep_raw", "_on_tokens", "_origin_s", "_parser", "_stream", "backlog", "eager",
        "failure", "token_events", "transcript",
    )  # fmt: skip

    def __init__(
        self,
        transcript: RequestTranscript,
        *,
        stream: bool,
        origin_s: float,
        on_tokens: Callable[[int], None] | None = None,
        keep_raw: bool = True,
    ) -> None:
        """``on_tokens`` is told the number of token-bearing events each time it grows."""
        self.transcript = transcript
        self.failure: tuple[Ending, str] | None = None
        self.token_events = 0
        self._stream = stream
        self._origin_s = origin_s
        self._on_tokens = on_tokens
        self._keep_raw = keep_raw
        self.eager = stream
        self._parser = SseParser()
        self.backlog: list[tuple[float, bytes]] = []

    def feed(self, t_s: float, data: bytes) -> None:
        """A piece of the body, which arrived at ``t_s`` on the clock."""
        if not self.eager:
            self.backlog.append((t_s, data))
            return
        self._read_stream(t_s, data)
        self.eager = self.token_events == 0 or self._on_tokens is not None

    @property
    def may_be_done(self) -> bool:
        """Whether the last piece looks like the terminal event; `catch_up` makes it certain."""
        return self.done or bool(self.backlog and b"[DONE]" in self.backlog[-1][1])

    @property
    def done(self) -> bool:
        """Whether the terminal event has been read."""
        return self.transcript.terminators > 0

    def catch_up(self) -> None:
        """Parse what was put aside. After a failure nothing more is read."""
        backlog = self.backlog.copy()
        self.backlog.clear()
        if not self._stream:
            self._read_whole(backlog)
            return
        for t_s, data in backlog:
            if not self._read_plain(t_s, data):
                self._read_stream(t_s, data)

    def read_error_body(self) -> str:
        """The server's own words in the body of a refusal."""
        body = b"".join(data for _, data in self.backlog)
        self.backlog.clear()
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            return body[:200].decode("utf-8", "replace").strip()
        if self._keep_raw:
            self.transcript.raw.append(document)
        if isinstance(document, dict):
            return error_message(document.get("error") or document)
        return error_message(document)

    def defer_everything(self) -> None:
        """The answer is no stream after all (an error document): keep it for `read_error_body`."""
        self._stream = self.eager = False

    def _read_whole(self, backlog: list[tuple[float, bytes]]) -> None:
        if not backlog:
            self.failure = (Ending.PROTOCOL_ERROR, "the answer has no body")
            return
        self._read_json(backlog[-1][0], b"".join(data for _, data in backlog))

    def _read_plain(self, t_s: float, data: bytes) -> bool:
        """Whether this piece was one whole ordinary event, now read."""
        if (
            self._keep_raw
            or self.failure is not None
            or data[:6] != b"data: "
            or data[-2:] != b"\n\n"
            or data.find(b"\n") != len(data) - 2
            or b"\r" in data
            or not self._parser.between_events
        ):
            return False
        choice = self.transcript.choices.get(0)
        if choice is None:
            return False
        chunk = plain_chunk(t_s - self._origin_s, memoryview(data)[6:-2])
        if chunk is None:
            return False
        choice.chunks.append(chunk)
        self.token_events += 1
        return True

    def _read_stream(self, t_s: float, data: bytes) -> None:
        before = self.token_events
        for event in self._parser.feed(data):
            if self.failure is not None:
                return
            self._read_event(t_s, event)
        if self._on_tokens is not None and self.token_events > before:
            self._on_tokens(self.token_events)

    def _read_event(self, t_s: float, event: SseEvent) -> None:
        if event.data.strip() == b"[DONE]":
            self.transcript.terminators += 1
            if self._keep_raw:
                self.transcript.raw.append(DONE)
            return
        if event.event == "error":
            self.failure = self._reported(_reported_error(event.data))
            return
        self._read_json(t_s, event.data)

    def _read_json(self, t_s: float, data: bytes) -> None:
        try:
            document = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            self.failure = (
                Ending.PROTOCOL_ERROR,
                f"not JSON ({error}): {data[:80].decode('utf-8', 'replace')!r}",
            )
            return
        if self._keep_raw:
            self.transcript.raw.append(document)
        try:
            self.token_events += read_document(document, t_s - self._origin_s, self.transcript)
        except MalformedAnswer as error:
            self.failure = (Ending.PROTOCOL_ERROR, str(error))
        except ServerReportedError as error:
            self.failure = self._reported(error)

    def _reported(self, error: ServerReportedError) -> tuple[Ending, str]:
        """A 4xx before any token is a refusal: vLLM answers 200 before it looks at a prompt."""
        refused = error.refuses and self.token_events == 0
        return (
            Ending.REFUSED if refused else Ending.SERVER_ERROR,
            f"the server reported: {error}",
        )


def _reported_error(data: bytes) -> ServerReportedError:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return ServerReportedError(data[:200].decode("utf-8", "replace"))
    inner = document.get("error", document) if isinstance(document, dict) else document
    return ServerReportedError(inner)
