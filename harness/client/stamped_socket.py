"""A TCP socket whose reads carry the kernel's own arrival time.

Context: a client that stamps data when its event loop gets round to reading it adds its own queue
to every latency. With 256 streams whose tokens arrive together, the last is read milliseconds after
it arrived, and every tool in use reports those milliseconds as the server's.

Choice: where the kernel stamps arrivals (see `arrival_stamp`), the time of a read is that stamp.

Rejected: stamping in a thread per connection (the interpreter lock queues instead of the loop),
and hardware stamps (few network cards, none on loopback). Where the option does not exist, and
under TLS, whose records are only readable in user space, times are those of the socket read.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Final, Protocol

from harness.client.arrival_stamp import STAMP_SPACE, age_s, ask_for_stamps
from harness.client.clock import now

_READ_BYTES: Final = 32 * 1024


class ByteReader(Protocol):
    """Who gets what a socket read brought."""

    def bytes_arrived(self, t_s: float, data: bytes) -> None:
        """Bytes that arrived at ``t_s``."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; None after an orderly end."""


class StampedSocket:
    """Reads and writes one connected socket for ``reader``. Has the calls of an asyncio transport
    that a connection needs: `write`, `close`, `abort`."""

    def __init__(self, sock: socket.socket, reader: ByteReader) -> None:
        self._sock = sock
        self._recvmsg = sock.recvmsg
        self._fd = sock.fileno()
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._unsent = bytearray()
        self._closed = False
        self.stamped = ask_for_stamps(sock)
        self._loop.add_reader(self._fd, self._readable if self.stamped else self._readable_plain)

    def write(self, data: bytes) -> None:
        """Send now what the socket takes, the rest when it takes more."""
        if self._closed:
            return
        sent = 0
        if not self._unsent:
            try:
                sent = self._sock.send(data)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._lose(error)
                return
            if sent == len(data):
                return
            self._loop.add_writer(self._fd, self._writable)
        self._unsent += data[sent:]

    def close(self) -> None:
        """Close; what has not been sent is dropped."""
        if not self._closed:
            self._close_socket()
            self._loop.call_soon(self._reader.connection_lost, None)

    abort = close

    def _readable(self) -> None:  # once an event: this method is the cost of the client
        try:
            data, ancillary, _, _ = self._recvmsg(_READ_BYTES, STAMP_SPACE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        t_s = now()
        if data:
            self._reader.bytes_arrived(t_s - age_s(ancillary), data)
        else:
            self._lose(None)

    def _readable_plain(self) -> None:
        try:
            data = self._sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        t_s = now()
        if data:
            self._reader.bytes_arrived(t_s, data)
        else:
            self._lose(None)

    def _writable(self) -> None:
        try:
            sent = self._sock.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._fd)

    def _lose(self, error: Exception | None) -> None:
        if not self._closed:
            self._close_socket()
            self._reader.connection_lost(error)

    def _close_socket(self) -> None:
        self._closed = True
        self._loop.remove_reader(self._fd)
        if self._unsent:
            self._loop.remove_writer(self._fd)
        with contextlib.suppress(OSError):
            self._sock.close()
