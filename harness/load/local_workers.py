"""Workers as processes of this machine, which all read the same monotonic clock.

A worker sends its rows as they come, so that this process has them on disk whatever happens next.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from harness.cli.errors import UserError
from harness.client.clock import now
from harness.load.worker import Worker, WorkerReport, WorkerTask

START_DELAY_S = 0.3
"""From the last worker's word that it is ready to the common start."""


class WorkerLost(UserError):
    """A worker process ended before it could report."""


def run_locally(
    tasks: Sequence[WorkerTask], on_row: Callable[[Mapping[str, Any]], None] | None = None
) -> list[WorkerReport]:
    """Run one process for each task; they begin at the same moment. Raises WorkerLost.

    ``on_row`` is given each row soon after its request ended.
    """
    context = multiprocessing.get_context("spawn")
    started: list[tuple[BaseProcess, Connection]] = []
    try:
        for task in tasks:
            ours, theirs = context.Pipe()
            process: BaseProcess = context.Process(target=_serve, args=(theirs, task), daemon=True)
            process.start()
            theirs.close()
            started.append((process, ours))
        for _, connection in started:
            _receive(connection)
        start_at_s = now() + START_DELAY_S
        for _, connection in started:
            connection.send(start_at_s)
        return _collect([connection for _, connection in started], on_row)
    finally:
        for process, connection in started:
            connection.close()
            process.join(timeout=2)
            if process.is_alive():
                process.terminate()
                process.join()


def _receive(connection: Connection) -> Any:
    while True:
        try:
            return connection.recv()
        except EOFError:
            raise WorkerLost("a worker process died; its log is above") from None
        except KeyboardInterrupt:
            continue  # the workers got it too and report what they have


def _collect(
    connections: Sequence[Connection], on_row: Callable[[Mapping[str, Any]], None] | None
) -> list[WorkerReport]:
    """Take rows from whoever has some until all have reported; the reports then have their rows."""
    rows: list[list[dict[str, Any]]] = [[] for _ in connections]
    reports: dict[int, WorkerReport] = {}
    place = {connection: number for number, connection in enumerate(connections)}
    with _interrupts_left_to_workers():
        while len(reports) < len(connections):
            for ready in wait([c for c, number in place.items() if number not in reports]):
                number = place[ready]  # type: ignore[index]
                received = _receive(connections[number])
                if isinstance(received, WorkerReport):
                    received.rows = rows[number]
                    reports[number] = received
                    continue
                rows[number].append(received)
                if on_row is not None:
                    on_row(received)
    return [reports[number] for number in range(len(connections))]


@contextmanager
def _interrupts_left_to_workers() -> Iterator[None]:
    """Ctrl-C reaches the workers too, and they report; here it would cut a row in two."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(connection: Connection, task: WorkerTask) -> None:
    with suppress(KeyboardInterrupt, EOFError, BrokenPipeError):
        worker = Worker(task)
        worker.prepare()
        connection.send(None)
        connection.send(worker.run(connection.recv(), _sender(connection)))


def _sender(connection: Connection) -> Callable[[dict[str, Any]], None]:
    """Sends rows for as long as somebody listens; after that the run is of use to nobody."""

    def send(row: dict[str, Any]) -> None:
        try:
            connection.send(row)
        except OSError:
            signal.raise_signal(signal.SIGINT)

    return send
