"""Errors as the OpenAI API words them: ``{"error": {"message", "type", "param", "code"}}``."""

from __future__ import annotations

from typing import Any

import orjson

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"


class ApiError(Exception):
    """A request that gets an error answer. ``param`` names the field that is wrong.

    ``status`` is the HTTP status; ``code`` a short machine-readable reason or None.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = INVALID_REQUEST,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = headers or {}

    def to_json(self) -> dict[str, Any]:
        """The error object as the OpenAI API shapes it."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }

    def body(self) -> bytes:
        """`to_json` as bytes."""
        return orjson.dumps(self.to_json())


def unavailable(message: str) -> ApiError:
    """503: the server is not ready, is draining, or its engine is dead."""
    return ApiError(message, status=503, kind=SERVER_ERROR, code="unavailable")


def internal_error() -> ApiError:
    """500 without details: those are in the log, not on the wire."""
    return ApiError(
        "the server failed while answering this request; its log says why",
        status=500,
        kind=SERVER_ERROR,
        code="internal_error",
    )
