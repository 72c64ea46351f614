"""Arrival times from the kernel."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from contextlib import closing

import pytest

from harness.client.arrival_stamp import age_s
from harness.client.stamped_socket import StampedSocket


class Reads:
    """Notes what arrived."""

    def __init__(self) -> None:
        self.reads: list[tuple[float, bytes]] = []
        self.lost: list[Exception | None] = []
        self.changed = asyncio.Event()

    def bytes_arrived(self, t_s: float, data: bytes) -> None:
        self.reads.append((t_s, data))
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)
        self.changed.set()


def connected_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    ours.setblocking(False)
    return ours, theirs


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux stamps arrivals")
async def test_a_late_reader_sees_when_the_bytes_arrived():
    """The kernel begins to stamp a moment after the first socket asks for it (a work queue turns
    the switch), so bytes sent at once may still be stamped as they are read: they are sent again.
    """
    ours, theirs = connected_pair()
    reads = Reads()
    wire = StampedSocket(ours, reads)
    assert wire.stamped
    late_s = []
    with closing(theirs), closing(wire):
        for attempt in range(1, 21):
            before = time.monotonic()
            theirs.sendall(b"x")
            after = time.monotonic()
            time.sleep(0.05)  # noqa: ASYNC251  (the loop is late, which is the point)
            while len(reads.reads) < attempt:
                reads.changed.clear()
                await reads.changed.wait()
            t_s, data = reads.reads[-1]
            assert data == b"x"
            assert before - 0.002 <= t_s
            if t_s <= after + 0.02:
                return
            late_s.append(t_s - after)
    pytest.fail(f"the time of reading, not of arrival: late by {late_s} s")


async def test_the_end_and_a_reset_are_told_apart():
    for linger, kind in ((None, type(None)), (b"\x01\0\0\0\0\0\0\0", ConnectionResetError)):
        ours, theirs = connected_pair()
        reads = Reads()
        StampedSocket(ours, reads)
        if linger:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        theirs.close()
        await reads.changed.wait()
        assert [type(e) for e in reads.lost] == [kind]


async def test_what_the_socket_does_not_take_at_once_is_sent_later():
    ours, theirs = connected_pair()
    theirs.setblocking(False)
    wire = StampedSocket(ours, Reads())
    data = bytes(8_000_000)
    wire.write(data)
    wire.write(b"end")
    got = b""
    loop = asyncio.get_running_loop()
    while len(got) < len(data) + 3:
        got += await loop.sock_recv(theirs, 1 << 20)
    assert got.endswith(b"end")
    wire.close()
    theirs.close()


def test_a_stamp_that_makes_no_sense_is_not_used():
    in_an_hour = time.time_ns() + 3_600_000_000_000
    for nanoseconds in (in_an_hour, 0):
        seconds, rest = divmod(nanoseconds, 1_000_000_000)
        stamp = seconds.to_bytes(8, sys.byteorder) + rest.to_bytes(8, sys.byteorder)
        assert age_s([(1, 35, stamp)]) == 0.0
    assert age_s([]) == 0.0
