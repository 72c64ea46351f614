"""Starts the paced server in a process of its own and stops it again, whatever happens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paced_server(*flags: str) -> Iterator[str]:
    """The URL of a running paced server, for the length of the block.

    Its standard input is a pipe from here, and it ends with it: also if this process is killed.
    Raises RuntimeError if it does not come up.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.load.paced.server", *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None  # noqa: S101  (both are pipes)
    assert process.stdout is not None  # noqa: S101
    try:
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError("the paced server did not start")
        yield url
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
