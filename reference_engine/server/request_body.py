"""Reading a JSON object from an HTTP request, in bounded memory and time."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from aiohttp import web

from reference_engine.server.errors import ApiError
from reference_engine.server.limits import Limits

_MAX_CLIENT_ID_CHARS = 128


async def read_object(request: web.Request, limits: Limits) -> dict[str, Any]:
    """The body as a JSON object.

    Raises ApiError: 413 above ``max_body_bytes``, 408 when it does not arrive in time, 400 when it
    is no JSON object. NaN, infinities, invalid UTF-8 and nesting beyond 1,024 levels are no JSON.
    """
    length = request.content_length
    if length is not None and length > limits.max_body_bytes:
        raise _too_large(limits)
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            raw = await request.read()
    except TimeoutError:
        raise ApiError(
            f"the body did not arrive within {limits.body_timeout_s:g} s",
            status=408,
            code="body_timeout",
        ) from None
    except web.HTTPRequestEntityTooLarge:
        raise _too_large(limits) from None
    except web.RequestPayloadError:
        raise ApiError(
            "the body is not what its Content-Encoding or Transfer-Encoding says",
            code="invalid_http",
        ) from None
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ApiError(f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(body, dict):
        raise ApiError("the body must be a JSON object", code="invalid_json")
    return body


def client_request_id(request: web.Request, body_id: str | None) -> str | None:
    """The client's own name for the request, from the body or the ``X-Request-Id`` header."""
    name = body_id or request.headers.get("X-Request-Id")
    if name is None:
        return None
    printable = name.isascii() and name.isprintable() and 0 < len(name) <= _MAX_CLIENT_ID_CHARS
    if not printable:
        raise ApiError(
            f"a request id must be 1 to {_MAX_CLIENT_ID_CHARS} printable ASCII characters",
            param="request_id",
            code="invalid_value",
        )
    return name


def _too_large(limits: Limits) -> ApiError:
    return ApiError(
        f"the body is larger than {limits.max_body_bytes} bytes",
        status=413,
        code="body_too_large",
    )
