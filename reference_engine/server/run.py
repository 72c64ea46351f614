"""`run_server`: a model folder becomes a listening server."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from reference_engine.faults import install
from reference_engine.server.engine_host import EngineHost, EngineLike
from reference_engine.server.limits import Limits
from reference_engine.server.metrics import ServerMetrics
from reference_engine.server.served_model import ModelFacts, ServedModel
from reference_engine.server.serving import Listen, Server, ServingRefused
from reference_engine.server.text_codec import TextCodec

if TYPE_CHECKING:
    from reference_engine.engine import EngineConfig
    from reference_engine.faults import Fault


def served_name(model_dir: Path) -> str:
    """The probe's name where the folder holds ``probe.json``, else the folder's own name."""
    description = model_dir / "probe.json"
    if description.is_file():
        name = json.loads(description.read_text(encoding="utf-8")).get("config", {}).get("name")
        if isinstance(name, str) and name:
            return name
    return model_dir.resolve().name


def run_server(
    model_dir: Path,
    listen: Listen,
    engine_config: EngineConfig,
    *,
    name: str | None = None,
    device: str = "auto",
    dtype: str = "float32",
    threads: int = 1,
    fault: Fault | None = None,
    limits: Limits | None = None,
    trace_steps: int = 0,
    log_requests: bool = False,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return.

    ``threads`` is torch's number of compute threads. One is the default: on a machine shared with
    the client, two that wait for each other are slower than one.

    ``device`` and ``dtype``: see `reference_engine.device`.

    Raises ServingRefused, DeviceRefused, or ModelRefused from loading, each with one sentence for
    the user.
    """
    if not model_dir.is_dir():
        raise ServingRefused(f"{model_dir} is not a folder; give the folder of a checkpoint")
    listening = listen.bind()
    host = EngineHost(
        lambda: _load(served, model_dir, (device, dtype), threads, engine_config, fault),
        trace_steps=trace_steps,
    )
    served = ServedModel(
        name=name or served_name(model_dir),
        host=host,
        limits=limits or Limits(),
        metrics=ServerMetrics(lambda: host.stats, lambda: host.live_requests),
        log_requests=log_requests,
    )

    async def serve() -> None:
        await Server(served, listening, api_key=listen.api_key, announce=announce).run()

    with listening:
        _run_loop(serve)


def _load(
    served: ServedModel,
    model_dir: Path,
    placement: tuple[str, str],
    threads: int,
    engine_config: EngineConfig,
    fault: Fault | None,
) -> EngineLike:
    """Runs on the engine thread: torch and the model are nobody else's business.

    OpenMP counts threads for each thread that calls it, so the number is set here too.
    """
    import torch
    from transformers.utils.logging import disable_progress_bar

    from reference_engine.engine import Engine
    from reference_engine.model import load_model
    from reference_engine.self_test import InexactArithmetic, self_test

    torch.set_num_threads(threads)
    disable_progress_bar()
    device, dtype = placement
    model = load_model(model_dir, device=device, dtype=dtype)
    codec = TextCodec.load(model_dir, model.vocab_size)
    try:
        self_test(model)
    except InexactArithmetic as error:
        raise ServingRefused(f"this machine's arithmetic is not exact: {error}") from None
    engine = Engine(model, engine_config, fault=fault)
    facts = {**asdict(engine_config), "device": str(model.device)}
    dtype = str(model.dtype).removeprefix("torch.")
    served.facts = ModelFacts(
        codec, model.max_context_tokens, facts, dtype, engine.max_request_tokens
    )
    if engine.fault_run is not None:
        served.fault_run = install(engine.fault_run.fault, served.parts, engine.fault_run)
    return engine


def _run_loop(serve: Callable[[], object]) -> None:
    """On uvloop where there is one: an event costs less than half of what it does on asyncio."""
    try:
        import uvloop
    except ImportError:
        logging.getLogger("isobatch.server").info("uvloop is not installed; using asyncio's loop")
        asyncio.run(serve())  # type: ignore[arg-type]
    else:
        uvloop.run(serve())  # type: ignore[arg-type]
