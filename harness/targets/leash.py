"""Runs one command and ends it when whoever started this has died, even by SIGKILL.

Started as a script by `harness.targets.launch`, as the leader of a session of its own, with a pipe
from the harness as its standard input. The pipe ends when the harness does: then everything in the
session gets SIGTERM and, after a grace time, SIGKILL. Standard library only, so that it starts in
some milliseconds. Exits with the command's status.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Final

GRACE_S: Final = 5.0


def main(command: list[str]) -> int:
    """Run ``command`` until it ends or standard input does; its exit status."""
    # A handler rather than SIG_IGN: an ignored signal would be ignored by the command as well.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: None)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_group_when_alone, daemon=True).start()
    status = child.wait()
    return status if status >= 0 else 128 - status


def _end_group_when_alone() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGTERM)
    time.sleep(GRACE_S)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
