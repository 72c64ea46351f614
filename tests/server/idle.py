"""Reading ``/metrics`` as numbers, and waiting until nothing is live any more."""

from __future__ import annotations

import asyncio

import aiohttp


async def metrics(session: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """Every sample by its name with labels."""
    async with session.get(url + "/metrics") as response:
        lines = (await response.text()).splitlines()
    rows = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in rows}


async def until_idle(session: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """The metrics of a server without live requests; the test's own timeout bounds the wait."""
    while True:
        gauges = await metrics(session, url)
        busy = ("live_requests", "num_requests_running", "num_requests_waiting", "kv_pages_used")
        if not any(gauges[f"isobatch_{name}"] for name in busy):
            return gauges
        await asyncio.sleep(0.02)
