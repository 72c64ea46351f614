"""A server-sent events parser whose result does not depend on how the bytes were cut.

Follows the event stream section of the WHATWG HTML standard: lines end with LF, CR or CRLF; a line
that begins with a colon is a comment; one space after the colon of a field is dropped; several
``data`` lines are joined by LF; an event ends with an empty line; an unfinished event at the end
of the stream is discarded. Bytes in, bytes out: UTF-8 is decoded by whoever reads the data, so a
character may be split anywhere. ``id`` and ``retry`` are read over, since no request is resumed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_BOM: Final = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One event: its type (``message`` unless the server named one) and its data."""

    event: str
    data: bytes


class SseParser:
    """Bytes of one event stream in, events out, each as soon as its last byte is there."""

    __slots__ = ("_at_start", "_data", "_event", "_skip_lf", "_tail")

    def __init__(self) -> None:
        self._tail: list[bytes] = []  # pieces of the line that has not ended yet
        self._data: list[bytes] = []
        self._event = ""
        self._skip_lf = False  # the last line ended with a CR, so an LF may belong to it
        self._at_start = True

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that end within ``data``."""
        if self._skip_lf and data:
            self._skip_lf = False
            if data[0] == 0x0A:
                data = data[1:]
        if not data:
            return []
        if b"\n" not in data and b"\r" not in data:
            self._tail.append(data)
            return []
        if self._tail:
            self._tail.append(data)
            data = b"".join(self._tail)
            self._tail = []
        if self._at_start:
            self._at_start = False
            data = data.removeprefix(_BOM)
        lines = data.splitlines()
        last = data[-1:]
        if last == b"\r":
            self._skip_lf = True
        elif last != b"\n":
            self._tail.append(lines.pop())
        return self._read_lines(lines)

    @property
    def between_events(self) -> bool:
        """Whether the next byte begins an event."""
        return not (self._tail or self._data or self._event or self._skip_lf or self._at_start)

    @property
    def unfinished(self) -> bool:
        """Whether bytes of an event are held that has not ended."""
        return bool(self._tail or self._data)

    def _read_lines(self, lines: list[bytes]) -> list[SseEvent]:
        events: list[SseEvent] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line:
                if self._data:
                    data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                    events.append(SseEvent(self._event or "message", data))
                    self._data = []
                self._event = ""
            else:
                self._read_other_field(line)
        return events

    def _read_other_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"event":
            self._event = value.removeprefix(b" ").decode("utf-8", "replace")
        elif name == b"data":  # a line of the one word, without a colon: an empty data line
            self._data.append(b"")
