"""Reading a stream in tests, with plain string operations: not the harness's own reader."""

from __future__ import annotations

import json
from typing import Any

from tests.server.conftest import Running


def parse_events(raw: bytes) -> list[Any]:
    """Each event's JSON, or ``[DONE]``. Raises AssertionError for anything that is no event."""
    blocks = raw.decode().split("\n\n")
    assert blocks.pop() == "", "the stream does not end with a whole event"
    events = []
    for block in blocks:
        assert block.startswith("data: "), f"not an event: {block!r}"
        text = block.removeprefix("data: ")
        events.append(text if text == "[DONE]" else json.loads(text))
    return events


async def sse_events(running: Running, path: str, **body: object) -> list[Any]:
    """All events of one streamed answer."""
    async with running.client.post(running.url + path, json={**body, "stream": True}) as response:
        assert response.status == 200, await response.text()
        return parse_events(await response.read())
