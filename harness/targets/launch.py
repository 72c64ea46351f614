"""Starting a server as a process of its own, knowing when it is ready, and always stopping it.

The process gets its own session, so that a stop reaches everything it started. It is stopped when
the block ends, however it ends: SIGTERM first, SIGKILL after `stop_timeout_s`. It runs on a leash
(`harness.targets.leash`), which stops it when the harness itself is killed. The port must be free
before and must belong to the started process afterwards. Its output goes to a log file, whose end
is part of the error when it does not come up.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from harness.targets import leash
from harness.targets.port import free_port, owned_by, require_free
from harness.targets.target import TargetUnusable

__all__ = ["LaunchedServer", "free_port", "launched", "own_server"]

_URL: Final = re.compile(rb"(https?://[\w.\-\[\]:]+:\d+)[/\s]")
_LOG_TAIL_LINES: Final = 4
# The name of a Python exception and its message: the first in a log is the cause of the others.
_ERROR: Final = re.compile(r"\b[A-Z]\w*(?:Error|Exception): .+")
_WITHOUT_PROXY: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class LaunchedServer:
    """A running server: where it listens, the leader of its session, and its output's file.

    ``exit_status()`` is None as long as it runs.
    """

    url: str
    pid: int
    log: Path
    exit_status: Callable[[], int | None]


@contextmanager
def launched(
    command: Sequence[str],
    *,
    log: Path,
    url: str | None = None,
    environment: Mapping[str, str] | None = None,
    ready_path: str = "/health",
    ready_timeout_s: float = 120.0,
    stop_timeout_s: float = 10.0,
) -> Iterator[LaunchedServer]:
    """Run ``command``, yield once it answers ``ready_path`` with 200, stop it at the end.

    Without ``url`` the first URL that the command prints is its address. ``environment`` is added
    to this process's own. Raises TargetUnusable when the port is taken, when the command cannot be
    started, ends early, or is not ready within ``ready_timeout_s``.
    """
    if url is not None:
        require_free(*_host_and_port(url))
    process = _start(command, log, environment)
    try:
        deadline_s = time.monotonic() + ready_timeout_s
        address = url or _printed_url(process, log, deadline_s)
        _wait_until_ready(process, address + ready_path, log, deadline_s)
        if owned_by(process.pid, _host_and_port(address)[1]) is False:
            raise TargetUnusable(f"another process answers at {address}; choose another port")
        yield LaunchedServer(address, process.pid, log, process.poll)
    finally:
        _stop(process, stop_timeout_s)


def _start(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    if shutil.which(command[0]) is None:
        raise TargetUnusable(f"cannot start {command[0]}: No such file or not executable")
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", leash.__file__, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )


def _host_and_port(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 80


def own_server(*arguments: str) -> list[str]:
    """The command that serves with our own engine, in this same Python."""
    return [sys.executable, "-m", "harness.cli", "serve", *arguments]


def _printed_url(process: subprocess.Popen[bytes], log: Path, deadline_s: float) -> str:
    while True:
        if found := _URL.search(log.read_bytes()):
            return found[1].decode()
        _pause(process, log, deadline_s, "printed no address")


def _wait_until_ready(
    process: subprocess.Popen[bytes], url: str, log: Path, deadline_s: float
) -> None:
    while not _answers(url):
        _pause(process, log, deadline_s, f"did not answer {url}")


def _answers(url: str) -> bool:
    try:
        with _WITHOUT_PROXY.open(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def _pause(process: subprocess.Popen[bytes], log: Path, deadline_s: float, complaint: str) -> None:
    """Wait a little for a server that is coming up, or say why it never will."""
    if (status := process.poll()) is not None:
        raise TargetUnusable(f"the server ended with status {status} at start: {_tail(log)}")
    if time.monotonic() > deadline_s:
        raise TargetUnusable(f"the server {complaint} in time: {_tail(log)}")
    time.sleep(0.05)


def _tail(log: Path) -> str:
    """The first error that the log names, and its last lines."""
    text = log.read_text("utf-8", "replace").strip()
    lines = text.splitlines()[-_LOG_TAIL_LINES:]
    first = _ERROR.search(text)
    if first is not None and not any(first[0] in line for line in lines):
        lines = [first[0], "...", *lines]
    return " | ".join(lines) or f"it wrote nothing to {log}"


def _stop(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """End the process and everything of its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
