"""Workers as processes of this machine, which all read the same monotonic clock."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from harness.cli.errors import UserError
from harness.client.clock import now
from harness.load.worker import Worker, WorkerReport, WorkerTask

START_DELAY_S = 0.3
"""From the last worker's word that it is ready to the common start."""


class WorkerLost(UserError):
    """A worker process ended before it could report."""


def run_locally(tasks: Sequence[WorkerTask]) -> list[WorkerReport]:
    """Run one process for each task; they begin at the same moment. Raises WorkerLost."""
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
        return [_receive(connection) for _, connection in started]
    finally:
        for process, connection in started:
            connection.close()
            process.join(timeout=2)
            if process.is_alive():
                process.terminate()
                process.join()


def _receive(connection: Connection) -> WorkerReport:
    while True:
        try:
            received: WorkerReport = connection.recv()
        except EOFError:
            raise WorkerLost("a worker process died; its log is above") from None
        except KeyboardInterrupt:
            continue  # the workers got it too and report what they have
        return received


def _serve(connection: Connection, task: WorkerTask) -> None:
    with suppress(KeyboardInterrupt, EOFError, BrokenPipeError):
        worker = Worker(task)
        worker.prepare()
        connection.send(None)
        connection.send(worker.run(connection.recv()))
