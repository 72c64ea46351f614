"""A server in a process of its own, for tests of signals and of the command line."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class ServedProcess:
    """The process, the line it printed when it was ready, and the URL in that line."""

    process: subprocess.Popen[str]
    ready_line: str

    @property
    def url(self) -> str:
        """The last word of the ready line."""
        return self.ready_line.split()[-1]


@contextlib.contextmanager
def served_process(*arguments: str) -> Iterator[ServedProcess]:
    """Run ``python -m ...``, wait for its ready line; it is gone when the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            _, errors = process.communicate()
            raise AssertionError(f"the server ended with {process.returncode}: {errors}")
        yield ServedProcess(process, line.strip())
    finally:
        process.kill()
        process.communicate()
