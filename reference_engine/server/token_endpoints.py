"""``POST /tokenize`` and ``POST /detokenize``, as vLLM shapes them."""

from __future__ import annotations

from typing import Final

import orjson
from aiohttp import web

from reference_engine.server.chat import MESSAGES
from reference_engine.server.chat_template import render_chat
from reference_engine.server.errors import ApiError
from reference_engine.server.fields import Boolean, Field, Integer, ListOf, Text, read_table
from reference_engine.server.prompts import encode_text
from reference_engine.server.request_body import read_object
from reference_engine.server.sampling_fields import MAX_TOKEN_ID, check_vocabulary
from reference_engine.server.served_model import SERVED

# Bounds on work that is done between two tokens of somebody's stream.
MAX_CHARS: Final = 2**18
MAX_TOKENS_TO_DECODE: Final = 2**16

TOKENIZE_FIELDS: Final = (
    Field("model", Text(512)),
    Field("prompt", Text(MAX_CHARS), about="The text; or give messages."),
    Field("messages", MESSAGES, about="A conversation, for the chat template."),
    Field("add_special_tokens", Boolean(), about="true for a prompt, false for messages."),
    Field("add_generation_prompt", Boolean(), True),
    Field("return_token_strs", Boolean(), False, about="Tell each token's text too."),
)
DETOKENIZE_FIELDS: Final = (
    Field("model", Text(512)),
    Field("tokens", ListOf(Integer(0, MAX_TOKEN_ID), 0, MAX_TOKENS_TO_DECODE), required=True),
)


async def tokenize(request: web.Request) -> web.Response:
    """Text or messages to ids."""
    served = request.app[SERVED]
    body = await read_object(request, served.limits)
    values = read_table(TOKENIZE_FIELDS, body)
    served.admit(body, 0)
    if (values["prompt"] is None) == (values["messages"] is None):
        raise ApiError("give either prompt or messages", param="prompt", code="missing_field")
    text, special = values["prompt"], values["add_special_tokens"]
    if text is None:
        text = render_chat(
            served.codec, values["messages"], add_generation_prompt=values["add_generation_prompt"]
        )
        special = bool(special)
    ids = await encode_text(served.codec, text, add_special_tokens=special is not False)
    answer = {"count": len(ids), "max_model_len": served.max_request_tokens, "tokens": ids}
    if values["return_token_strs"]:
        answer["token_strs"] = [served.codec.token_text(i) for i in ids]
    return web.Response(body=orjson.dumps(answer), content_type="application/json")


async def detokenize(request: web.Request) -> web.Response:
    """Ids to text."""
    served = request.app[SERVED]
    body = await read_object(request, served.limits)
    values = read_table(DETOKENIZE_FIELDS, body)
    served.admit(body, 0)
    check_vocabulary(values["tokens"], served.codec.vocab_size, "tokens")
    text = served.codec.decode(values["tokens"], skip_special_tokens=False)
    return web.Response(body=orjson.dumps({"prompt": text}), content_type="application/json")
