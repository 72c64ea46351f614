"""A single GET or POST outside the measurement: discovery, metrics, tokenize."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import orjson

from harness.client.clock import now
from harness.client.exchange import Exchange
from harness.client.limits import Limits
from harness.client.openai_request import Caller
from harness.client.pool import ConnectFailed, ConnectionPool
from harness.transcript import Ending


@dataclass(frozen=True, slots=True)
class PlainAnswer:
    """Status, headers and whole body; ``status`` is None if no HTTP answer came, see ``error``."""

    status: int | None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ending: Ending = Ending.COMPLETE
    error: str | None = None

    def json(self) -> Any:
        """The body as JSON, None if it is not JSON."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None


async def get(pool: ConnectionPool, caller: Caller, path: str, limits: Limits) -> PlainAnswer:
    """GET ``path``. Never raises for what the server does."""
    return await _call(pool, caller.head("GET", path), limits)


async def post(
    pool: ConnectionPool, caller: Caller, path: str, document: Any, limits: Limits
) -> PlainAnswer:
    """POST a JSON document to ``path``. Never raises for what the server does."""
    body = orjson.dumps(document)
    return await _call(pool, caller.head("POST", path, len(body)) + body, limits)


async def post_bytes(
    pool: ConnectionPool, caller: Caller, path: str, body: bytes, limits: Limits
) -> PlainAnswer:
    """POST any bytes as if they were JSON. Never raises for what the server does."""
    return await _call(pool, caller.head("POST", path, len(body)) + body, limits)


async def _call(pool: ConnectionPool, payload: bytes, limits: Limits) -> PlainAnswer:
    pieces: list[bytes] = []
    try:
        connection, _ = await pool.acquire(fresh=True)
    except ConnectFailed as failed:
        return PlainAnswer(None, ending=Ending.CONNECT_FAILED, error=str(failed))
    exchange = Exchange(payload, lambda _, data: pieces.append(data))
    connection.begin(exchange)
    limit_s = min(limits.total_s, limits.first_token_s, 30.0)
    try:
        async with asyncio.timeout(limit_s):
            await exchange.done
    except TimeoutError:
        connection.abandon()
        exchange = Exchange(b"", exchange.sink)
        exchange.fail(now(), Ending.TIMEOUT, f"no whole answer within {limit_s:g} s")
    pool.release(connection)
    ending, error = exchange.failure or (Ending.COMPLETE, None)
    return PlainAnswer(exchange.status, exchange.headers, b"".join(pieces), ending, error)
