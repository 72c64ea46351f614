"""Connections to one endpoint: as many as the workload needs, reused when idle, never limited."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import resource
import socket
import ssl

from harness.client.clock import now
from harness.client.connection import HttpConnection
from harness.client.endpoint import Endpoint
from harness.client.limits import Limits
from harness.client.stamped_socket import StampedSocket


class ConnectFailed(Exception):
    """No connection; the message says why."""


class ConnectionPool:
    """Opens connections and keeps idle ones. There is no upper bound but the system's.

    ``opened`` counts connections made, ``reused`` exchanges that found an idle one.
    """

    def __init__(self, endpoint: Endpoint, limits: Limits, *, verify_tls: bool = True) -> None:
        self._endpoint = endpoint
        self._limits = limits
        self._ssl = endpoint.ssl_context(verify=verify_tls)
        self._idle: list[HttpConnection] = []
        self._addresses: list[tuple[socket.AddressFamily, str]] | None = None
        self._resolving = asyncio.Lock()
        self.opened = 0
        self.reused = 0

    async def prepare(self) -> None:
        """Look the host up beforehand, so that no request waits for it; failures show later."""
        with contextlib.suppress(ConnectFailed):
            await self._resolve()

    async def acquire(self, *, fresh: bool = False) -> tuple[HttpConnection, float | None]:
        """A connection, and the seconds it took to open it (None for a reused one).

        Raises ConnectFailed.
        """
        while self._idle and not fresh:
            connection = self._idle.pop()
            if connection.open:
                self.reused += 1
                return connection, None
        started_s = now()
        connection = await self._connect()
        self.opened += 1
        return connection, now() - started_s

    def release(self, connection: HttpConnection) -> None:
        """Give a connection back after its exchange; a closed one is dropped."""
        if connection.open:
            self._idle.append(connection)

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _connect(self) -> HttpConnection:
        error: Exception | None = None
        try:
            async with asyncio.timeout(self._limits.connect_s):
                for family, address in await self._resolve():
                    try:
                        connection = await self._connect_to(family, address)
                    except OSError as failed:
                        error = failed
                        continue
                    self._addresses = [(family, address)]
                    return connection
        except TimeoutError:
            raise ConnectFailed(f"no connection within {self._limits.connect_s:g} s") from None
        raise ConnectFailed(_connect_sentence(error)) from error

    async def _connect_to(self, family: socket.AddressFamily, address: str) -> HttpConnection:
        loop = asyncio.get_running_loop()
        connection = HttpConnection(self._limits)
        if self._ssl is not None:
            await loop.create_connection(
                lambda: connection,
                address,
                self._endpoint.port,
                family=family,
                ssl=self._ssl,
                server_hostname=self._endpoint.host,
            )
            return connection
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await _connect_socket(sock, (address, self._endpoint.port))
        except BaseException:
            sock.close()
            raise
        connection.connected(StampedSocket(sock, connection))
        return connection

    async def _resolve(self) -> list[tuple[socket.AddressFamily, str]]:
        """The host's addresses; the one that answered is kept, so that later calls are quick.

        Asked for once, however many connections wait for it.
        """
        if self._addresses is None:
            async with self._resolving:
                if self._addresses is None:
                    self._addresses = await _addresses(self._endpoint)
        return self._addresses


async def _connect_socket(sock: socket.socket, address: tuple[str, int]) -> None:
    """Connect to an address that needs no look-up: uvloop's own call asks a thread for one."""
    status = sock.connect_ex(address)
    if status == errno.EINPROGRESS:
        loop = asyncio.get_running_loop()
        writable = loop.create_future()
        loop.add_writer(sock.fileno(), _set, writable)
        try:
            await writable
        finally:
            loop.remove_writer(sock.fileno())
        status = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if status:
        kind = ConnectionRefusedError if status == errno.ECONNREFUSED else OSError
        raise kind(status, os.strerror(status))


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _addresses(endpoint: Endpoint) -> list[tuple[socket.AddressFamily, str]]:
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(endpoint.host)
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        return [(family, endpoint.host)]
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConnectFailed(f"the host name is unknown: {error.strerror}") from None
    return [(family, str(address[0])) for family, _, _, _, address in found]


def _connect_sentence(error: Exception | None) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there (connection refused)"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's TLS certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    return str(error) if error is not None else "the host has no address"


def raise_descriptor_limit() -> int:
    """Lift the soft limit of open files to the hard one, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return soft
