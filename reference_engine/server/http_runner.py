"""Small changes to aiohttp's connection handling, so that garbage too gets an answer in our shape.

aiohttp answers bytes that are no HTTP with a page of HTML or text, and logs a traceback with what
the client sent. Here the answer is the API's error object, the connection is closed, and the log
stays small: a stranger must not be able to fill it.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from reference_engine.server.errors import ApiError, internal_error

log = logging.getLogger("isobatch.server")


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
        """What is not HTTP, or broke below the application. Who hung up gets no answer."""
        if isinstance(exc, ConnectionError):
            log.debug("a client hung up before it was answered")
            raise exc
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error("a connection failed", exc_info=exc)
            error = internal_error()
        else:
            log.debug("a connection sent what is not HTTP")
            error = ApiError("the request is not valid HTTP", status=status, code="invalid_http")
        if request.writer.output_size > 0:
            raise ConnectionError("part of an answer has been sent already")
        response = web.Response(body=error.body(), status=status, content_type="application/json")
        response.force_close()
        return response
