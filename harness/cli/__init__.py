"""The ``isobatch`` command: one file a command, each imported only when it is asked for."""

from harness.cli.app import main

__all__ = ["main"]
