"""The kernel's arrival time of what a socket read brought (Linux, ``SO_TIMESTAMPNS``).

The kernel stamps each segment on the realtime clock as it comes in, and `recvmsg` hands over the
stamp of the last byte read (Documentation/networking/timestamping.rst in the kernel's tree). It is
turned into an age at the moment of reading and taken off the monotonic time, so a step of the
realtime clock spoils only what was in flight during the step; an age that makes no sense is 0.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from typing import Any, Final

_SO_TIMESTAMPNS: Final = 35
_STAMP: Final = struct.Struct("@qq")
_OLDEST_S: Final = 30.0
_unpack: Final = _STAMP.unpack
_realtime_ns: Final = time.time_ns

STAMP_SPACE: Final = socket.CMSG_SPACE(_STAMP.size)
"""Bytes of ancillary data to ask `recvmsg` for."""


def ask_for_stamps(sock: socket.socket) -> bool:
    """Switch stamps on; False where this system has none."""
    if sys.platform != "linux":
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


def age_s(ancillary: list[Any]) -> float:
    """Seconds since the data arrived, from what `recvmsg` returned; 0 where it doesn't say."""
    if not ancillary:
        return 0.0
    seconds, nanoseconds = _unpack(ancillary[0][2])
    age: float = (_realtime_ns() - seconds * 1_000_000_000 - nanoseconds) * 1e-9
    return age if 0.0 < age < _OLDEST_S else 0.0
