"""Answering a generation request: parse, submit, then stream or collect."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
from aiohttp import web

from reference_engine.server.answer_shape import AnswerShape
from reference_engine.server.chat import parse_chat
from reference_engine.server.chunks import Chunks
from reference_engine.server.completions import parse_completion
from reference_engine.server.errors import ApiError, internal_error
from reference_engine.server.event_stream import EventStream, SlowReader
from reference_engine.server.generation import ChoiceDelta, Generation
from reference_engine.server.mailbox import Overflow
from reference_engine.server.request_body import client_request_id, read_object
from reference_engine.server.served_model import SERVED, ServedModel

log = logging.getLogger("isobatch.server")

Parse = Callable[[Mapping[str, Any], ServedModel, str], Awaitable[AnswerShape]]


async def completions(request: web.Request) -> web.StreamResponse:
    """``POST /v1/completions``."""
    return await _answer(request, "cmpl", parse_completion)


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """``POST /v1/chat/completions``."""
    return await _answer(request, "chatcmpl", parse_chat)


async def _answer(request: web.Request, prefix: str, parse: Parse) -> web.StreamResponse:
    served = request.app[SERVED]
    body = await read_object(request, served.limits)
    served.admit(body, 1)
    body_id = body.get("request_id")
    client_id = client_request_id(request, body_id if isinstance(body_id, str) else None)
    response_id = served.ids.take(prefix, client_id)
    try:
        if served.log_requests:
            log.info("%s asks %s", response_id, orjson.dumps(body).decode())
        shape = await parse(body, served, response_id)
        served.admit(body, len(shape.plan.prompts))
        generation = Generation(
            served.host,
            served.texts,
            shape.plan,
            timings=served.metrics,
            max_pending_events=served.limits.max_pending_events,
        )
        if shape.options.stream:
            return await _stream(request, served, shape, generation)
        return await _whole(served, shape, generation)
    finally:
        served.ids.release(response_id)


async def _whole(
    served: ServedModel, shape: AnswerShape, generation: Generation
) -> web.StreamResponse:
    plan = shape.plan
    choices: list[list[ChoiceDelta]] = [[] for _ in range(len(plan.prompts) * plan.sampling.n)]
    async with generation:
        async for deltas in generation.batches():
            for delta in deltas:
                choices[delta.index].append(delta)
    answer = {
        **served.answers.envelope(plan.response_id, shape.whole_object),
        "choices": [served.answers.whole_choice(shape, deltas) for deltas in choices],
        "usage": served.answers.usage(generation.usage),
        **shape.whole_extra(choices),
    }
    if served.log_requests:
        log.info("%s answers %s", plan.response_id, orjson.dumps(answer["choices"]).decode())
    return web.Response(
        body=orjson.dumps(answer),
        content_type="application/json",
        headers={"X-Request-Id": plan.response_id},
    )


async def _stream(
    request: web.Request, served: ServedModel, shape: AnswerShape, generation: Generation
) -> web.StreamResponse:
    response_id = shape.plan.response_id
    chunks = Chunks(served.answers, shape, generation.usage)
    stream = EventStream(request, response_id, write_stall_s=served.limits.write_stall_s)
    async with generation:
        await stream.open()
        try:
            for choice in shape.opening():
                await stream.send(chunks.chunk(choice))
            async for deltas in generation.batches():
                await stream.send(b"".join([chunks.delta(delta) for delta in deltas]))
            await stream.send(chunks.ending())
        except (Overflow, SlowReader):
            log.warning("%s is dropped: its client does not read", response_id)
            return stream.abort()
        except ConnectionError:
            raise
        except Exception as error:
            return await _fail(stream, _as_api_error(error, response_id))
        return await stream.close()


async def _fail(stream: EventStream, error: ApiError) -> web.StreamResponse:
    """Tell the client in the stream, if it still reads."""
    try:
        await stream.fail(error)
    except SlowReader:
        return stream.abort()
    return await stream.close()


def _as_api_error(error: Exception, response_id: str) -> ApiError:
    """Unexpected errors are logged in full and told without details."""
    if isinstance(error, ApiError):
        return error
    log.error("%s failed", response_id, exc_info=error)
    return internal_error()
