"""A small OpenAI-like server for tests of the client: answers a counting sequence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class CountingServer:
    """Answers token ids 100, 101, ... as text ``<100><101>``. ``requests`` are the bodies seen."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.disconnects = 0
        self.live = 0
        self.most_live = 0
        self.delay_s = 0.0
        self.url = ""

    async def models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "counting"}]})

    async def metrics(self, _request: web.Request) -> web.Response:
        return web.Response(text=f'x_running{{a="1"}} {self.live}\nx_running{{a="2"}} 1\n')

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.live += 1
        self.most_live = max(self.most_live, self.live)
        try:
            if body.get("stream"):
                return await self._stream(request, body)
            await asyncio.sleep(self.delay_s)
            return web.json_response(self._whole(body))
        except (asyncio.CancelledError, ConnectionError):
            self.disconnects += 1
            raise
        finally:
            self.live -= 1

    def _usage(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt = body.get("prompt", "x")
        return {
            "prompt_tokens": len(prompt),
            "completion_tokens": body.get("max_tokens", 4),
            "prompt_tokens_details": {"cached_tokens": 0},
        }

    def _whole(self, body: dict[str, Any]) -> dict[str, Any]:
        ids = list(range(100, 100 + body.get("max_tokens", 4)))
        text = "".join(f"<{i}>" for i in ids)
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length", "token_ids": ids}
        if "messages" in body:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        return {"id": "one", "choices": [choice], "usage": self._usage(body)}

    async def _stream(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)

        async def send(document: Any) -> None:
            data = document if isinstance(document, str) else json.dumps(document)
            await response.write(f"data: {data}\n\n".encode())

        chat = "messages" in body
        if chat:
            await send({"id": "one", "choices": [{"index": 0, "delta": {"role": "assistant"}}]})
        count = body.get("max_tokens", 4)
        for i in range(count):
            await asyncio.sleep(self.delay_s)
            choice: dict[str, Any] = {"index": 0, "token_ids": [100 + i]}
            text = f"<{100 + i}>"
            choice.update({"delta": {"content": text}} if chat else {"text": text})
            if i == count - 1:
                choice["finish_reason"] = "length"
            await send({"id": "one", "choices": [choice]})
        if body.get("stream_options", {}).get("include_usage"):
            await send({"id": "one", "choices": [], "usage": self._usage(body)})
        await send("[DONE]")
        return response


@asynccontextmanager
async def counting_server() -> AsyncIterator[CountingServer]:
    """Serve on a free port."""
    server = CountingServer()
    app = web.Application()
    app.router.add_get("/v1/models", server.models)
    app.router.add_get("/metrics", server.metrics)
    app.router.add_post("/v1/completions", server.completions)
    app.router.add_post("/v1/chat/completions", server.completions)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=512)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
