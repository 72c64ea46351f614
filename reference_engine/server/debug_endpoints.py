"""``/debug`` paths: what the last steps computed, and how often a planted fault has acted."""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web

from reference_engine.server.errors import ApiError
from reference_engine.server.served_model import SERVED


async def debug_steps(request: web.Request) -> web.Response:
    """The records of the last steps, oldest first.

    ``t_start_s`` and ``t_end_s`` are on the server's monotonic clock. ``start`` is the position of
    the first token that the step computed for the request, ``tokens`` how many, and ``request_id``
    the ``id`` of the answer, with ``/p`` for prompt ``p`` of an answer with several.
    """
    served = request.app[SERVED]
    steps = [_step_json(record) for record in tuple(served.host.steps)]
    facts = {} if served.facts is None else served.facts.engine
    body = {"steps": steps, **facts}
    return web.Response(body=orjson.dumps(body), content_type="application/json")


async def debug_faults(request: web.Request) -> web.Response:
    """The fault that is switched on and its executions so far; 404 on a healthy server."""
    run = request.app[SERVED].fault_run
    if run is None:
        raise ApiError("no fault is switched on", status=404, code="not_found")
    body = {"fault": run.fault.name, "title": run.fault.title, "executions": run.executions}
    return web.Response(body=orjson.dumps(body), content_type="application/json")


def _step_json(record: Any) -> dict[str, Any]:
    return {
        "index": record.index,
        "t_start_s": record.t_start_s,
        "t_end_s": record.t_end_s,
        "preempted": record.preempted,
        "waiting": record.waiting,
        "pages_free": record.pages_free,
        "pages_used": record.pages_used,
        "pages_cached": record.pages_cached,
        "scheduled": [
            {
                "request_id": chunk.request_id,
                "choice": chunk.choice,
                "kind": chunk.kind,
                "start": chunk.start,
                "tokens": chunk.count,
            }
            for chunk in record.chunks
        ],
    }
