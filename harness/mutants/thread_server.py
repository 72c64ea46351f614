"""Our server in a thread of this process: real HTTP, but ready in a moment.

Starting a process for each of many faults would cost more than judging them: the model is loaded
and the arithmetic tested once, and each fault gets an engine and a server of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.targets.target import TargetUnusable
from reference_engine.faults import FAULTS, install

if TYPE_CHECKING:
    from reference_engine.engine import EngineConfig
    from reference_engine.model import LoadedModel
    from reference_engine.server.served_model import ServedModel

READY_S = 120.0


@dataclass(slots=True)
class ThreadServer:
    """A server that is up. ``executions`` counts how often its fault was executed."""

    url: str
    served: ServedModel

    @property
    def executions(self) -> int | None:
        """None without a fault."""
        run = self.served.fault_run
        return run.executions if run is not None else None


@contextmanager
def thread_server(
    model: LoadedModel,
    folder: Path,
    name: str,
    config: EngineConfig | None = None,
    fault: str | None = None,
) -> Iterator[ThreadServer]:
    """Serve until the block ends. Raises TargetUnusable when it is not up in `READY_S` seconds."""
    from reference_engine.engine import EngineConfig

    thread = _Thread(_served(model, folder, name, config or EngineConfig(), fault))
    thread.start()
    try:
        if not thread.ready.wait(READY_S) or not thread.url:
            raise TargetUnusable("the server in a thread did not start")
        yield ThreadServer(thread.url, thread.served)
    finally:
        thread.stop.set()
        thread.join(30)


def _served(
    model: LoadedModel, folder: Path, name: str, config: EngineConfig, fault: str | None
) -> ServedModel:
    from reference_engine.engine import Engine
    from reference_engine.server.engine_host import EngineHost
    from reference_engine.server.limits import Limits
    from reference_engine.server.metrics import ServerMetrics
    from reference_engine.server.served_model import ModelFacts, ServedModel
    from reference_engine.server.text_codec import TextCodec

    engine = Engine(model, config, fault=FAULTS[fault] if fault else None)
    host = EngineHost(lambda: engine)
    served = ServedModel(
        name=name,
        host=host,
        limits=Limits(),
        metrics=ServerMetrics(lambda: host.stats, lambda: host.live_requests),
        facts=ModelFacts(
            TextCodec.load(folder, model.vocab_size),
            model.max_context_tokens,
            asdict(config),
            max_request_tokens=engine.max_request_tokens,
        ),
    )
    if engine.fault_run is not None:
        served.fault_run = install(engine.fault_run.fault, served.parts, engine.fault_run)
    return served


@dataclass(eq=False)
class _Thread:
    """The server's thread and its loop. A daemon: a fault that hangs must not hold us."""

    served: ServedModel
    url: str = ""
    ready: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self.ready.set()

    async def _serve(self) -> None:
        from aiohttp import web

        from reference_engine.server.app import create_app
        from reference_engine.server.http_runner import ApiRunner

        runner = ApiRunner(create_app(self.served), handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        await self.served.host.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self.ready.set()
        await asyncio.to_thread(self.stop.wait)
        await runner.cleanup()
        await self.served.host.stop()
