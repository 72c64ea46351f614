"""Small changes to aiohttp's connection handling, so that garbage too gets an answer in our shape.

aiohttp answers bytes that are no HTTP with a page of HTML or text. Here the answer is the API's
error object, and the connection is closed.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from reference_engine.server.errors import ApiError, internal_error


class ApiRunner(web.AppRunner):
    """An `AppRunner` whose connections answer errors as JSON."""

    async def _make_server(self) -> web.Server:
        plain = await super()._make_server()
        return _ApiServer(
            plain.request_handler,
            request_factory=plain.request_factory,
            handler_cancellation=plain.handler_cancellation,
            **plain._kwargs,
        )


class _ApiServer(web.Server):
    def __call__(self) -> RequestHandler:
        return _ApiConnection(self, loop=self._loop, **self._kwargs)


class _ApiConnection(RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: Any,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What is not HTTP, or broke below the application."""
        plain = super().handle_error(request, status, exc, message)
        error = internal_error()
        if status < 500:
            error = ApiError("the request is not valid HTTP", status=status, code="invalid_http")
        response = web.Response(
            body=error.body(), status=plain.status, content_type="application/json"
        )
        response.force_close()
        return response
