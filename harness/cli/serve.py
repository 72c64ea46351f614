"""`isobatch serve`: the reference engine behind an OpenAI-compatible HTTP API."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.errors import UserError
from harness.cli.serve_options import (
    ApiKey,
    Device,
    DrainS,
    Dtype,
    FaultName,
    Host,
    IdleTimeoutS,
    LogRequests,
    MaxBodyMib,
    MaxLiveRequests,
    MaxN,
    MaxNumSeqs,
    MaxPrompts,
    ModelDir,
    Name,
    NumPages,
    PageSize,
    Port,
    PrefixCaching,
    Threads,
    TokenBudget,
    TraceSteps,
    Verbose,
    WriteStallS,
)

if TYPE_CHECKING:
    from reference_engine.faults import Fault


def command(
    model_dir: ModelDir,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    name: Name = None,
    api_key: ApiKey = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    threads: Threads = 1,
    page_size: PageSize = 16,
    num_pages: NumPages = 2048,
    token_budget: TokenBudget = 256,
    max_num_seqs: MaxNumSeqs = 64,
    prefix_caching: PrefixCaching = True,
    max_body_mib: MaxBodyMib = 4.0,
    max_live_requests: MaxLiveRequests = 4096,
    max_prompts: MaxPrompts = 256,
    max_n: MaxN = 16,
    idle_timeout_s: IdleTimeoutS = 60.0,
    write_stall_s: WriteStallS = 30.0,
    drain_s: DrainS = 30.0,
    fault: FaultName = None,
    trace_steps: TraceSteps = 0,
    log_requests: LogRequests = False,
    verbose: Verbose = False,
) -> None:
    """Serve a checkpoint with the exact reference engine, over the OpenAI HTTP API.

    Prints one line when it is ready: `isobatch: serving NAME on http://HOST:PORT`. SIGTERM or
    Ctrl-C lets running requests finish, then exits with status 0; a second one exits at once.
    """
    _log_to_stderr(verbose=verbose or log_requests)
    options = {"name": name, "threads": threads, "fault": _fault(fault)}
    placement = {"device": device, "dtype": dtype}
    limits = {
        "max_body_bytes": int(max_body_mib * 1024 * 1024),
        "max_live_requests": max_live_requests,
        "max_prompts": max_prompts,
        "max_choices": max_n,
        "idle_timeout_s": idle_timeout_s,
        "write_stall_s": write_stall_s,
        "drain_s": drain_s,
    }
    engine = (page_size, num_pages, token_budget, max_num_seqs, prefix_caching)
    traces = {"trace_steps": trace_steps, "log_requests": log_requests}
    _run(model_dir, (host, port, api_key), engine, limits, **options, **placement, **traces)


def _run(
    model_dir: Path,
    listen: tuple[str, int, str | None],
    engine: tuple[int, int, int, int, bool],
    limits: dict[str, Any],
    **options: Any,
) -> None:
    from reference_engine.engine import EngineConfig
    from reference_engine.server.limits import Limits
    from reference_engine.server.run import run_server
    from reference_engine.server.serving import Listen

    try:
        run_server(
            model_dir,
            Listen(*listen),
            EngineConfig(*engine),
            limits=Limits(**limits),
            announce=_announce,
            **options,
        )
    except ValueError as error:  # ServingRefused, ModelRefused, DeviceRefused, a bad EngineConfig
        raise UserError(str(error)) from None


def _announce(line: str) -> None:
    """On stdout, alone and at once: programs wait for it."""
    print(line, flush=True)


def _log_to_stderr(*, verbose: bool) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def _fault(name: str | None) -> Fault | None:
    if name is None:
        return None
    from reference_engine.faults import FAULTS

    if name not in FAULTS:
        raise UserError(f"there is no fault {name!r}; `isobatch list faults` names them all")
    return FAULTS[name]
