"""Who listens on a TCP port: a measurement of the wrong server is worse than none.

An old server that still holds the port answers `/health` as well as the new one would, so a
launched server is believed only if one of its own processes owns the listening socket.
"""

from __future__ import annotations

import socket
from contextlib import suppress

import psutil

from harness.targets.target import TargetUnusable


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that was free a moment ago, for servers that cannot be told to choose one."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def require_free(host: str, port: int) -> None:
    """Raises TargetUnusable if something already answers on the port."""
    with suppress(OSError), socket.create_connection((host, port), timeout=2):
        raise TargetUnusable(
            f"port {port} of {host} is already in use by another process; stop it or choose "
            "another port"
        )


def owned_by(root_pid: int, port: int) -> bool | None:
    """Whether process ``root_pid`` or a descendant listens on ``port``.

    None where the operating system does not say.
    """
    try:
        root = psutil.Process(root_pid)
        family = [root, *root.children(recursive=True)]
        return any(_listens(process, port) for process in family)
    except (psutil.AccessDenied, NotImplementedError):
        return None
    except psutil.NoSuchProcess:
        return False


def _listens(process: psutil.Process, port: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return any(
            connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
            for connection in process.net_connections("tcp")
        )
    return False
