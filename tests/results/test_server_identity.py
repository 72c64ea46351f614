"""The server says who it is, in the places where servers do; nothing is guessed."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from harness.results.server_identity import discover_server


@contextmanager
def server(answers: dict[str, Any], header: str = "x/1") -> Iterator[str]:
    class Answering(http.server.BaseHTTPRequestHandler):
        server_version, sys_version = header, ""

        def do_GET(self) -> None:
            answer = answers.get(self.path)
            body = b"not json" if answer is None else json.dumps(answer).encode()
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}"
        finally:
            listening.shutdown()
            thread.join()


def models(owner: Any, **fields: Any) -> dict[str, Any]:
    return {"/v1/models": {"data": [{"id": "m", "owned_by": owner, **fields}]}}


@pytest.mark.parametrize(
    ("answers", "name", "version"),
    [
        ({**models("vllm"), "/version": {"version": "0.32"}}, "vLLM", "0.32"),
        ({**models("llamacpp"), "/props": {"build_info": "b9"}}, "llama.cpp", "b9"),
        ({**models("sglang"), "/get_server_info": {"version": "1"}}, "SGLang", "1"),
        (models("someone"), None, None),
        (models(None), None, None),
        ({"/v1/models": {"data": "x"}, "/version": [1]}, None, None),
        ({}, None, None),
    ],
)
def test_what_is_told_is_found(
    answers: dict[str, Any], name: str | None, version: str | None
) -> None:
    """Name and version with the source discovered; anything else is left out."""
    with server(answers) as url:
        found = discover_server(url + "/v1")
    assert (found.get("name"), found.get("version")) == (name, version)
    assert found["sources"] == dict.fromkeys(set(found) - {"sources"}, "discovered")


def test_nothing_there_is_no_error() -> None:
    """Discovery never stops a run."""
    assert discover_server("http://127.0.0.1:9", timeout_s=0.2) == {"sources": {}}
