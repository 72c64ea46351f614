"""One side of a comparison: a server that runs already, or a command that starts one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.targets.launch import free_port, launched


@dataclass(frozen=True, slots=True)
class Side:
    """``source`` is a URL, or a command line; ``{port}`` in a command becomes a free port."""

    label: str
    source: str

    @property
    def is_url(self) -> bool:
        """Whether the server runs already."""
        return self.source.startswith(("http://", "https://"))

    @contextmanager
    def serving(self, log: Path) -> Iterator[str]:
        """The URL while the server runs. Raises TargetUnusable when the command does not serve."""
        if self.is_url:
            yield self.source
            return
        url = None
        command = self.source
        if "{port}" in command:
            port = free_port()
            command = command.replace("{port}", str(port))
            url = f"http://127.0.0.1:{port}"
        with launched(shlex.split(command), log=log, url=url) as server:
            yield server.url
