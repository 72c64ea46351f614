"""Running the server: load, bind, announce, serve, drain.

The socket is bound first, so that a port in use is one clear sentence and not the end of a long
load. ``/health`` answers 503 until the engine is ready. SIGTERM or SIGINT stops taking connections
and lets running requests finish for ``drain_s`` seconds; a second one ends the process at once.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from reference_engine.server.app import create_app
from reference_engine.server.engine_host import HostState
from reference_engine.server.http_runner import ApiRunner
from reference_engine.server.served_model import ServedModel

log = logging.getLogger("isobatch.server")

FORCED_EXIT_STATUS = 130
_BACKLOG = 1024
_SEND_BUFFER_BYTES = 128 * 1024


class ServingRefused(ValueError):
    """The server cannot start as asked; the message is one sentence that says what to change."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to listen. ``port`` 0 picks a free one."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = field(default=None, repr=False)

    def bind(self) -> socket.socket:
        """A listening socket. Raises ServingRefused when the address can't be had.

        Anything but a loopback address needs an API key: an open model server on a network is an
        accident, not a choice.
        """
        if not self.api_key and not _is_loopback(self.host):
            raise ServingRefused(
                f"listening on {self.host} needs --api-key; without one only 127.0.0.1 is allowed"
            )
        try:
            family = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0][0]
            listening = socket.create_server(
                (self.host, self.port), family=family, backlog=_BACKLOG
            )
        except OSError as error:
            raise ServingRefused(
                f"cannot listen on {self.host}:{self.port}: {error.strerror or error}; "
                "choose another --host or --port"
            ) from None
        # Connections inherit it. Without it the kernel keeps megabytes for a client that has
        # stopped reading, and it takes long to notice that it has.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        return listening


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Server:
    """One served model on one socket; `run` returns when it has drained."""

    def __init__(
        self,
        served: ServedModel,
        listening: socket.socket,
        *,
        api_key: str | None = None,
        announce: Callable[[str], None] = print,
    ) -> None:
        self._served = served
        self._socket = listening
        self._announce = announce
        self._stop = asyncio.Event()
        self._signals = 0
        limits = served.limits
        self._runner = ApiRunner(
            create_app(served, api_key=api_key),
            handler_cancellation=True,
            access_log=logging.getLogger("isobatch.access"),
            access_log_format='%a "%r" %s %b %Tf s',
            keepalive_timeout=limits.idle_timeout_s,
            shutdown_timeout=1.0,
        )

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def run(self) -> None:
        """Serve until `stop` or a signal. Raises what loading the engine raised."""
        served = self._served
        self._listen_to_signals()
        await self._runner.setup()
        site = web.SockSite(self._runner, self._socket, backlog=_BACKLOG)
        await site.start()
        try:
            if await self._became_ready():
                self._announce(f"isobatch: serving {served.name} on {self.url}")
                await self._stop.wait()
            served.draining = True
            await site.stop()
            await self._drain()
        finally:
            # The engine first: whoever still waits is told so before the connections close.
            await served.host.stop()
            await self._runner.cleanup()

    def stop(self) -> None:
        """Begin to drain."""
        self._stop.set()

    async def _became_ready(self) -> bool:
        """Load the engine; False when a signal came first."""
        loading = asyncio.ensure_future(self._served.host.start())
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not loading.done():
            loading.cancel()
            return False
        await loading
        return True

    async def _drain(self) -> None:
        """Wait for running requests, but not for ever; what is left then is cancelled."""
        deadline_s = asyncio.get_running_loop().time() + self._served.limits.drain_s
        while self._served.ids.live and self._served.host.state is HostState.READY:
            if asyncio.get_running_loop().time() > deadline_s:
                log.warning("%d requests cancelled at the end of the drain", self._served.ids.live)
                return
            await asyncio.sleep(0.02)
        stats = self._served.host.stats
        if stats is not None:
            counts = (stats.pages_used, stats.pages_cached, stats.pages_free, stats.pages_total)
            log.info("drained: pages used %d, cached %d, free %d, total %d", *counts)

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        self._signals += 1
        if self._signals > 1:
            os._exit(FORCED_EXIT_STATUS)
        self.stop()
