"""HTTPS: good and bad certificates, and a handshake that takes its time."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from harness.client.limits import Limits
from harness.targets.http import HttpTarget
from harness.transcript import Ending, RequestTranscript
from tests.client.scripted_server import (
    DONE,
    END,
    HEAD,
    TOKEN,
    Script,
    chunk,
    saying,
    scripted_server,
)
from workloads.workload import Workload, WorkloadRequest

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
WHOLE = HEAD + chunk(TOKEN) + chunk(DONE) + END
REQUEST = Workload((WorkloadRequest("a", prompt_ids=(1,), params={"max_tokens": 1}),))


@pytest.fixture(scope="module")
def server_context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    folder: Path = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


async def ask(url: str, *, verify_tls: bool, connect_s: float = 30.0) -> RequestTranscript:
    target = HttpTarget(url, model="m", verify_tls=verify_tls, limits=Limits(connect_s=connect_s))
    transcript = await target.run(REQUEST)
    await target.close()
    return transcript["a"]


async def test_a_certificate_nobody_vouches_for_is_a_connect_failure(
    server_context: ssl.SSLContext,
):
    async with scripted_server(saying(WHOLE), ssl=server_context) as url:
        got = await ask(url, verify_tls=True)
    assert got.ending is Ending.CONNECT_FAILED
    assert "certificate is not trusted" in (got.error or "")


async def test_without_verification_the_stream_is_read(server_context: ssl.SSLContext):
    async with scripted_server(saying(WHOLE), ssl=server_context) as url:
        got = await ask(url, verify_tls=False)
    assert got.ending is Ending.COMPLETE, got.error
    assert got.first.token_ids == (7,)


def relaying(url: str, delay_s: float) -> Script:
    """Passes bytes on both ways, the server's first ones only after a while."""
    host, port = url.removeprefix("https://").split(":")

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, here = await asyncio.open_connection(host, int(port))

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)

        async def late() -> None:
            await asyncio.sleep(delay_s)
            await pump(there, writer)

        forward = asyncio.create_task(pump(reader, here))
        try:
            await late()
        finally:
            forward.cancel()
            here.close()

    return script


async def test_a_slow_handshake_is_connect_time_and_not_time_to_first_token(
    server_context: ssl.SSLContext,
):
    async with (
        scripted_server(saying(WHOLE), ssl=server_context) as url,
        scripted_server(relaying(url, 0.3)) as plain,
    ):
        slow = plain.replace("http:", "https:")
        got = await ask(slow, verify_tls=False)
        never = await ask(slow, verify_tls=False, connect_s=0.1)
    assert got.ending is Ending.COMPLETE, got.error
    assert got.t_connect_s is not None
    assert got.t_connect_s >= 0.29
    assert got.t_sent_s is not None
    assert got.t_sent_s >= 0.29
    assert never.ending is Ending.CONNECT_FAILED
    assert "no connection within" in (never.error or "")
