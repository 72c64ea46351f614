"""The aiohttp application: routes, and the middleware that every request passes."""

from __future__ import annotations

import asyncio
import hmac
import logging
from importlib.metadata import version as distribution_version

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from reference_engine.server.debug_endpoints import debug_faults, debug_steps
from reference_engine.server.engine_host import HostState
from reference_engine.server.errors import ApiError, internal_error
from reference_engine.server.generation_endpoint import chat_completions, completions
from reference_engine.server.metrics import CONTENT_TYPE
from reference_engine.server.openapi import openapi_document
from reference_engine.server.served_model import SERVED, ServedModel
from reference_engine.server.token_endpoints import detokenize, tokenize

log = logging.getLogger("isobatch.server")

OPEN_PATHS = frozenset({"/health", "/version"})
_CLIENT_CLOSED_REQUEST = 499


def create_app(served: ServedModel, *, api_key: str | None = None) -> web.Application:
    """The application for one served model.

    ``api_key``: every path but `OPEN_PATHS` then needs ``Authorization: Bearer``. ``/debug/steps``
    exists only when steps are traced. The caller starts and stops ``served.host``.
    """
    app = web.Application(
        middlewares=[_answered(served), _authorised(api_key)],
        client_max_size=served.limits.max_body_bytes,
    )
    app[SERVED] = served
    app.router.add_post("/v1/completions", completions, expect_handler=_expected)
    app.router.add_post("/v1/chat/completions", chat_completions, expect_handler=_expected)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/v1/models/{model}", model)
    app.router.add_post("/tokenize", tokenize, expect_handler=_expected)
    app.router.add_post("/detokenize", detokenize, expect_handler=_expected)
    app.router.add_get("/health", health)
    app.router.add_get("/version", version)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/openapi.json", openapi)
    if served.host.trace_steps:
        app.router.add_get("/debug/steps", debug_steps)
    app.router.add_get("/debug/faults", debug_faults)
    return app


async def models(request: web.Request) -> web.Response:
    """``GET /v1/models``."""
    return _json({"object": "list", "data": [_model_card(request.app[SERVED])]})


async def model(request: web.Request) -> web.Response:
    """``GET /v1/models/{model}``."""
    served = request.app[SERVED]
    name = request.match_info["model"]
    if name != served.name:
        raise served.no_such_model(name)
    return _json(_model_card(served))


async def health(request: web.Request) -> web.Response:
    """``GET /health``: 200 while requests can be served, else 503."""
    served = request.app[SERVED]
    state = "draining" if served.draining else served.host.state.value
    well = state == HostState.READY.value
    return web.json_response({"status": state}, status=200 if well else 503)


async def version(request: web.Request) -> web.Response:
    """``GET /version``: the version of isobatch, shaped as vLLM shapes its own."""
    return _json({"version": distribution_version("isobatch")})


async def metrics(request: web.Request) -> web.Response:
    """``GET /metrics``, for Prometheus."""
    body = request.app[SERVED].metrics.exposition()
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


async def openapi(request: web.Request) -> web.Response:
    """``GET /openapi.json``: what this server takes, with its own limits."""
    return _json(openapi_document(request.app[SERVED].limits))


def _model_card(served: ServedModel) -> dict[str, object]:
    return {
        "id": served.name,
        "object": "model",
        "created": served.created_s,
        "owned_by": "isobatch",
        "max_model_len": served.max_request_tokens,
        "dtype": served.dtype,
    }


def _json(document: object) -> web.Response:
    return web.Response(body=orjson.dumps(document), content_type="application/json")


def error_response(error: ApiError) -> web.Response:
    """An error as the OpenAI API shapes it."""
    return web.Response(
        body=error.body(),
        status=error.status,
        content_type="application/json",
        headers=error.headers,
    )


def _answered(served: ServedModel) -> Middleware:
    """Every request gets an answer in the API's shape, is counted, and fails alone."""

    @web.middleware
    async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
        route = request.match_info.route.resource
        name = "unknown" if route is None else route.canonical
        try:
            response = await handler(request)
        except ApiError as error:
            response = error_response(served.refused(error))
        except web.HTTPException as error:
            response = error_response(_http_error(error))
        except (asyncio.CancelledError, ConnectionError):
            served.metrics.response(name, _CLIENT_CLOSED_REQUEST)
            raise
        except Exception:
            log.exception("%s %s failed", request.method, name)
            response = error_response(internal_error())
        served.metrics.response(name, response.status)
        return response

    return answered


def _authorised(api_key: str | None) -> Middleware:
    """Lets through who knows the key; the comparison takes the same time for every wrong key."""

    @web.middleware
    async def authorised(request: web.Request, handler: Handler) -> web.StreamResponse:
        if api_key is not None and request.path not in OPEN_PATHS:
            given = request.headers.get("Authorization", "")
            wanted = f"Bearer {api_key}"
            if not hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode()):
                raise ApiError(
                    "the API key is missing or wrong: send 'Authorization: Bearer KEY'",
                    status=401,
                    kind="authentication_error",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        return await handler(request)

    return authorised


async def _expected(request: web.Request) -> web.StreamResponse | None:
    """``Expect: 100-continue`` gets its 100; any other expectation is refused in our shape."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # aiohttp counts bytes to know whether an answer has begun; an interim one does not count.
        request.writer.output_size = 0
        return None
    return error_response(
        ApiError("only 100-continue may be expected", status=417, code="invalid_http")
    )


def _http_error(error: web.HTTPException) -> ApiError:
    """What aiohttp itself refuses: unknown paths, wrong methods, bad headers."""
    headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
    return ApiError(
        f"{error.status} {error.reason}",
        status=error.status,
        code=error.reason.lower().replace(" ", "_"),
        headers=headers,
    )
