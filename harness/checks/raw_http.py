"""Requests that no honest client sends: any bytes at all, and what comes back for them."""

from __future__ import annotations

from typing import Any

from harness.checks.context import CheckContext
from harness.client.plain_call import PlainAnswer, get
from harness.client.plain_call import post_bytes as post
from harness.targets.http import HttpTarget


async def post_bytes(ctx: CheckContext, path: str, body: bytes) -> PlainAnswer:
    """POST ``body`` as JSON, whatever it is."""
    target = _http_target(ctx)
    return await post(target.pool, target.caller(), path, body, target.limits)


async def get_json(ctx: CheckContext, path: str) -> Any:
    """The JSON document at ``path``, None where there is none."""
    target = _http_target(ctx)
    return (await get(target.pool, target.caller(), path, target.limits)).json()


def _http_target(ctx: CheckContext) -> HttpTarget:
    target = ctx.session.target
    if not isinstance(target, HttpTarget):
        ctx.unsupported("the target is not reached over HTTP")
    ctx.tally.requests += 1
    return target
