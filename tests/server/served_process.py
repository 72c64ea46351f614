"""A server in a process of its own, for tests of signals and of the command line."""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO


@dataclass
class ServedProcess:
    """The process, the line it printed when it was ready, and the URL in that line."""

    process: subprocess.Popen[str]
    ready_line: str
    errors: IO[str]

    def stderr(self) -> str:
        """What it has logged so far."""
        self.errors.seek(0)
        return self.errors.read()

    @property
    def url(self) -> str:
        """The last word of the ready line."""
        return self.ready_line.split()[-1]


@contextlib.contextmanager
def served_process(*arguments: str) -> Iterator[ServedProcess]:
    """Run ``python -m ...``, wait for its ready line; it is gone when the block ends."""
    with tempfile.TemporaryFile("w+") as errors:  # a pipe that nobody reads would block the server
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments], stdout=subprocess.PIPE, stderr=errors, text=True
        )
        served = ServedProcess(process, "", errors)
        try:
            assert process.stdout is not None
            served.ready_line = process.stdout.readline().strip()
            if not served.ready_line:
                raise AssertionError(f"the server ended with {process.wait()}: {served.stderr()}")
            yield served
        finally:
            process.kill()
            process.communicate()


def resident_bytes(pid: int) -> int:
    """The memory that a process has in RAM."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def open_files(pid: int) -> int:
    """How many files and sockets a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
