"""The OpenAPI document, made from the same tables that check requests.

The copy beside this file is committed, and a test holds the two together; `write` renews it. The
server gives the document under ``/openapi.json``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from reference_engine.server.chat import chat_fields
from reference_engine.server.completions import completion_fields
from reference_engine.server.fields import Field, table_schema
from reference_engine.server.limits import Limits
from reference_engine.server.token_endpoints import DETOKENIZE_FIELDS, TOKENIZE_FIELDS

COMMITTED: Final = Path(__file__).with_name("openapi.json")

_REFUSALS: Final = {
    "400": "The request is wrong; ``param`` names the field.",
    "401": "The API key is missing or wrong.",
    "404": "There is no such model.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "429": "Too many requests are queued or running.",
    "500": "This request failed inside the server.",
    "503": "The engine is not ready, is draining, or is dead.",
}


def openapi_document(limits: Limits | None = None) -> dict[str, Any]:
    """The document for a server with these limits; without an argument, the default ones."""
    limits = limits or Limits()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "isobatch reference server",
            "version": version("isobatch"),
            "description": "The OpenAI API, answered by the exact reference engine.",
        },
        "paths": {
            "/v1/completions": {
                "post": _generation("completions", completion_fields(limits), "Completion")
            },
            "/v1/chat/completions": {
                "post": _generation("chat_completions", chat_fields(limits), "ChatCompletion")
            },
            "/v1/models": {"get": _read("models", _ref("ModelList"), ("401", "500", "503"))},
            "/v1/models/{model}": {
                "parameters": [
                    {
                        "name": "model",
                        "in": "path",
                        "required": True,
                        "schema": {"type": "string", "minLength": 1},
                    }
                ],
                "get": _read("model", _ref("Model"), ("401", "404", "500", "503")),
            },
            "/tokenize": {"post": _call("tokenize", TOKENIZE_FIELDS, _ref("Tokens"))},
            "/detokenize": {"post": _call("detokenize", DETOKENIZE_FIELDS, _ref("Text"))},
            "/health": {"get": _health()},
            "/metrics": {"get": _metrics()},
            "/version": {"get": _read("version", _object({"version": _STRING}), ("500",))},
        },
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _refusals(statuses: Sequence[str]) -> dict[str, Any]:
    return {status: _json(_REFUSALS[status], _ref("Error")) for status in statuses}


def _body(fields: Sequence[Field]) -> dict[str, Any]:
    schema = table_schema(fields)
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _generation(name: str, fields: Sequence[Field], answer: str) -> dict[str, Any]:
    done = _json("The answer, or with stream=true its chunks as events.", _ref(answer))
    done["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    return {
        "operationId": name,
        "requestBody": _body(fields),
        "responses": {"200": done, **_refusals(tuple(_REFUSALS))},
    }


def _call(name: str, fields: Sequence[Field], answer: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": name,
        "requestBody": _body(fields),
        "responses": {"200": _json("The answer.", answer), **_refusals(tuple(_REFUSALS))},
    }


def _read(name: str, answer: dict[str, Any], statuses: Sequence[str]) -> dict[str, Any]:
    return {
        "operationId": name,
        "responses": {"200": _json("The answer.", answer), **_refusals(statuses)},
    }


def _health() -> dict[str, Any]:
    state = {
        "type": "object",
        "properties": {
            "status": {"enum": ["starting", "ready", "draining", "stopped", "dead"]},
        },
        "required": ["status"],
    }
    return {
        "operationId": "health",
        "security": [],
        "responses": {
            "200": _json("Requests are served.", state),
            "503": _json("Requests are not served.", state),
        },
    }


def _metrics() -> dict[str, Any]:
    text = {"description": "For Prometheus.", "content": {"text/plain": {"schema": _STRING}}}
    return {"operationId": "metrics", "responses": {"200": text, **_refusals(("401", "500"))}}


_STRING: Final[dict[str, Any]] = {"type": "string"}
_COUNT: Final[dict[str, Any]] = {"type": "integer", "minimum": 0}
_FINISH: Final[dict[str, Any]] = {"enum": ["stop", "length"]}


def _object(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _schemas() -> dict[str, Any]:
    model = _object(
        {
            "id": _STRING,
            "object": {"const": "model"},
            "created": _COUNT,
            "owned_by": _STRING,
            "max_model_len": _COUNT,
            "dtype": _STRING,
        }
    )
    error = _object(
        {
            "message": _STRING,
            "type": _STRING,
            "param": _nullable(_STRING),
            "code": _nullable(_STRING),
        }
    )
    return {
        "Error": _object({"error": error}),
        "Model": model,
        "ModelList": _object({"object": {"const": "list"}, "data": _list(_ref("Model"))}),
        "Tokens": _object(
            {
                "count": _COUNT,
                "max_model_len": _COUNT,
                "tokens": _list(_COUNT),
                "token_strs": _list(_STRING),
            },
            "token_strs",
        ),
        "Text": _object({"prompt": _STRING}),
        "Usage": _object(
            {
                "prompt_tokens": _COUNT,
                "completion_tokens": _COUNT,
                "total_tokens": _COUNT,
                "prompt_tokens_details": _object({"cached_tokens": _COUNT}),
            }
        ),
        "Completion": _answer("text_completion", {"text": _STRING}),
        "ChatCompletion": _answer("chat.completion", {"message": _message()}),
    }


def _message() -> dict[str, Any]:
    return _object(
        {"role": {"const": "assistant"}, "content": _STRING, "refusal": {"type": "null"}}
    )


def _answer(object_name: str, content: dict[str, Any]) -> dict[str, Any]:
    scores = _nullable({"type": "object"})
    choice = _object(
        {
            "index": _COUNT,
            **content,
            "logprobs": scores,
            "finish_reason": _FINISH,
            "stop_reason": {"type": ["string", "integer", "null"]},
            "token_ids": _list(_COUNT),
            "prompt_token_ids": _list(_COUNT),
            "prompt_logprobs": _list(scores),
        },
        "token_ids",
        "prompt_token_ids",
        "prompt_logprobs",
    )
    return _object(
        {
            "id": _STRING,
            "object": {"const": object_name},
            "created": _COUNT,
            "model": _STRING,
            "choices": _list(choice),
            "usage": _ref("Usage"),
        }
    )


def render(document: dict[str, Any]) -> str:
    """The committed form."""
    return json.dumps(document, indent=1) + "\n"


def write() -> None:
    """Renew the committed copy."""
    COMMITTED.write_text(render(openapi_document()), encoding="utf-8")
