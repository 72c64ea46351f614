"""Our real server in a thread of the test, over a model that is loaded once: ready in a moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from aiohttp import web

from reference_engine.engine import Engine, EngineConfig
from reference_engine.faults import FAULTS
from reference_engine.model import LoadedModel
from reference_engine.server.app import create_app
from reference_engine.server.engine_host import EngineHost
from reference_engine.server.http_runner import ApiRunner
from reference_engine.server.limits import Limits
from reference_engine.server.metrics import ServerMetrics
from reference_engine.server.served_model import ModelFacts, ServedModel
from reference_engine.server.text_codec import TextCodec


@contextmanager
def live_server(
    model: LoadedModel,
    folder: Path,
    name: str,
    config: EngineConfig | None = None,
    fault: str | None = None,
) -> Iterator[str]:
    """Serve until the block ends; yields the URL."""
    config = config or EngineConfig()
    engine = Engine(model, config, fault=FAULTS[fault] if fault else None)
    host = EngineHost(lambda: engine)
    served = ServedModel(
        name=name,
        host=host,
        limits=Limits(),
        metrics=ServerMetrics(lambda: host.stats, lambda: host.live_requests),
        facts=ModelFacts(
            TextCodec.load(folder, model.vocab_size), model.max_context_tokens, asdict(config)
        ),
    )
    started, stop = threading.Event(), threading.Event()
    address: list[str] = []

    async def serve() -> None:
        runner = ApiRunner(create_app(served), handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        await host.start()
        address.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        started.set()
        await asyncio.to_thread(stop.wait)
        await runner.cleanup()
        await host.stop()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert started.wait(60), "the server did not start"
        yield address[0]
    finally:
        stop.set()
        thread.join(30)
