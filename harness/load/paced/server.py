"""The paced server: one process, one epoll loop, one heap of due writes.

Context: to measure a client's error, the server must be cheaper and more punctual than any client
and must say when it really sent. asyncio would add its own timer grain (a millisecond in uvloop)
and its own queue, so this loop is written out: it sleeps with microsecond resolution, sends what
is due in order, and stamps each event as it is sent.

Run it as ``python -m harness.load.paced.server``; it prints its URL and serves until its standard
input ends or it gets a signal.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from harness.client.arrival_stamp import STAMP_SPACE, age_s, ask_for_stamps
from harness.load.paced.answer import AnswerBytes, answer_of, json_answer
from harness.load.paced.pace import Pace
from harness.load.paced.truth import Sends, Truth

now = time.monotonic
_MODELS = {"object": "list", "data": [{"id": "paced", "object": "model"}]}


@dataclass(slots=True)
class _Connection:
    sock: socket.socket
    received: bytearray = field(default_factory=bytearray)
    unsent: bytearray = field(default_factory=bytearray)
    answering: bool = False
    closed: bool = False
    arrived_s: float = 0.0


@dataclass(slots=True)
class _Answer:
    connection: _Connection
    bytes: AnswerBytes
    pace: Pace
    writes: Iterator[tuple[float, int, int]]
    started_s: float
    chunks: int
    sends: Sends
    sent_s: float = 0.0


class PacedServer:
    """Serves paced completions on a port of the loopback interface until `stop` is called.

    ``GET /paced/truth`` tells what a perfect client would have measured since it was last asked,
    ``GET /paced/sends`` when each event of each answer since then was sent (JSON Lines), and
    ``GET /paced/hanging`` how many answers have stopped for good, as their pace asked.
    """

    def __init__(self, port: int = 0, default: Pace | None = None) -> None:
        self._default = default or Pace()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self._listener.setblocking(False)
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._connections: dict[int, _Connection] = {}
        self._due: list[tuple[float, int, int, int, _Answer]] = []
        self._order = itertools.count()
        self._running = True
        self._hanging = 0
        self._truth = Truth()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def stop(self) -> None:
        """Make `serve` return soon."""
        self._running = False

    def serve(self, *, until_stdin_ends: bool = False) -> None:
        """Serve until stopped."""
        stdin = sys.stdin.fileno() if until_stdin_ends else None
        if stdin is not None:
            self._epoll.register(stdin, select.EPOLLIN | select.EPOLLHUP)
        while self._running:
            self._wait()
            for fd, events in self._epoll.poll(0):
                if fd == self._listener.fileno():
                    self._accept()
                elif fd == stdin:
                    self._running = bool(events & select.EPOLLIN and os.read(fd, 4096))
                else:
                    self._ready(fd, events)
            self._send_due()
        for connection in self._connections.values():
            connection.sock.close()
        self._listener.close()
        self._epoll.close()

    def _wait(self) -> None:
        # epoll waits in milliseconds; select on the epoll descriptor waits in microseconds.
        timeout_s = 0.5
        if self._due:
            timeout_s = min(timeout_s, max(0.0, self._due[0][0] - now()))
        if timeout_s > 0:
            select.select([self._epoll], [], [], timeout_s)

    # --- reading ------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ask_for_stamps(sock)
            self._connections[sock.fileno()] = _Connection(sock)
            self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _ready(self, fd: int, events: int) -> None:
        connection = self._connections.get(fd)
        if connection is None:
            return
        if events & select.EPOLLOUT:
            self._flush(connection)
        if not events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            return
        try:
            data, ancillary, _, _ = connection.sock.recvmsg(65536, STAMP_SPACE)
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        if not data:
            self._close(connection)
            return
        read_s = now()
        connection.received += data
        connection.arrived_s = read_s - age_s(ancillary)
        if not connection.answering:
            self._read_request(connection, read_s)

    def _read_request(self, connection: _Connection, read_s: float) -> None:
        head, mark, rest = bytes(connection.received).partition(b"\r\n\r\n")
        if not mark:
            return
        length = _content_length(head)
        if len(rest) < length:
            return
        connection.received = bytearray(rest[length:])
        method, _, target = head.split(b"\r\n", 1)[0].partition(b" ")
        path = target.split(b" ")[0]
        if method == b"POST" and path.endswith(b"/completions"):
            self._begin(connection, rest[:length], read_s, chat=b"/chat/" in path)
        elif path.endswith(b"/models"):
            self._write(connection, json_answer(_MODELS))
        elif path == b"/health":
            self._write(connection, json_answer({}))
        elif path == b"/paced/truth":
            self._write(connection, json_answer(self._truth.take()))
        elif path == b"/paced/sends":
            self._write(connection, answer_of(self._truth.take_sends(), b"application/jsonl"))
        elif path == b"/paced/hanging":
            self._write(connection, json_answer({"answers": self._hanging}))
        else:
            missing = {"error": {"message": "the paced server has no such path"}}
            self._write(connection, json_answer(missing, b"404 Not Found"))

    def _begin(self, connection: _Connection, body: bytes, read_s: float, *, chat: bool) -> None:
        try:
            asked: dict[str, Any] = json.loads(body)
            pace = Pace.from_json(asked.get("paced"), self._default)
            tokens = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or 16)
            options = asked.get("stream_options") or {}
        except (ValueError, AttributeError) as error:
            refusal = {"error": {"message": str(error)}}
            self._write(connection, json_answer(refusal, b"400 Bad Request"))
            return
        prompt = asked.get("prompt", "")
        count = len(prompt) if isinstance(prompt, list) else len(str(prompt).split())
        response_id = f"paced-{next(self._order)}"
        answer_bytes = AnswerBytes(
            response_id,
            count,
            tokens,
            pace.tokens_per_chunk,
            bool(options.get("include_usage")),
            connection.arrived_s,
            chat,
        )
        if not asked.get("stream"):
            self._write(connection, answer_bytes.whole())
            return
        connection.answering = True
        sends = self._truth.sends[response_id] = Sends(connection.arrived_s)
        writes = pace.writes(tokens)
        chunks = -(-tokens // pace.tokens_per_chunk)
        self._plan(_Answer(connection, answer_bytes, pace, writes, read_s, chunks, sends))

    # --- writing ------------------------------------------------------------------------------

    def _plan(self, answer: _Answer) -> None:
        after_s, first, count = next(answer.writes)
        due_s = answer.started_s + after_s
        heapq.heappush(self._due, (due_s, next(self._order), first, count, answer))

    def _send_due(self) -> None:
        while self._due and self._due[0][0] <= now():
            _, _, first, count, answer = heapq.heappop(self._due)
            if not answer.connection.closed:
                self._send(answer, first, count)

    def _send(self, answer: _Answer, first: int, count: int) -> None:
        connection, pace = answer.connection, answer.pace
        last = first + count
        if pace.hang_at is not None and first >= pace.hang_at:
            self._hanging += 1
            return
        if pace.reset_at is not None and first >= pace.reset_at:
            self._close(connection)
            return
        if pace.error_at is not None and first >= pace.error_at:
            self._finish(answer, answer.bytes.error())
            return
        sent_s = now()
        if first == 0:
            self._truth.ttfts.append(sent_s - connection.arrived_s)
        else:
            self._truth.gaps.append(sent_s - answer.sent_s)
        answer.sent_s = sent_s
        answer.sends.sent_s.extend([sent_s] * count)
        data = b"".join(answer.bytes.chunk(i, sent_s) for i in range(first, last))
        if last < answer.chunks:
            self._write(connection, data)
            self._plan(answer)
        else:
            self._finish(answer, data + answer.bytes.end())

    def _finish(self, answer: _Answer, data: bytes) -> None:
        connection = answer.connection
        self._write(connection, data)
        connection.answering = False
        if connection.received and not connection.closed:
            self._read_request(connection, now())

    def _write(self, connection: _Connection, data: bytes) -> None:
        if connection.unsent:
            connection.unsent += data
            return
        try:
            sent = connection.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(connection)
            return
        if sent < len(data):
            connection.unsent += data[sent:]
            self._epoll.modify(connection.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _flush(self, connection: _Connection) -> None:
        data, connection.unsent = bytes(connection.unsent), bytearray()
        self._epoll.modify(connection.sock.fileno(), select.EPOLLIN)
        self._write(connection, data)

    def _close(self, connection: _Connection) -> None:
        if not connection.closed:
            connection.closed = True
            self._connections.pop(connection.sock.fileno(), None)
            self._epoll.unregister(connection.sock.fileno())
            connection.sock.close()


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft-s", type=float, default=Pace().ttft_s)
    parser.add_argument("--gap-s", type=float, default=Pace().gap_s)
    arguments = parser.parse_args()
    server = PacedServer(arguments.port, Pace(ttft_s=arguments.ttft_s, gap_s=arguments.gap_s))
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    signal.signal(signal.SIGINT, lambda *_: server.stop())
    print(server.url, flush=True)
    server.serve(until_stdin_ends=True)


if __name__ == "__main__":
    main()
