"""From a `WorkloadRequest` to the bytes of an OpenAI API call."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from harness.client.endpoint import Endpoint
from harness.targets.target import TargetUnusable
from workloads.workload import WorkloadRequest

COMPLETIONS: Final = "/v1/completions"
CHAT: Final = "/v1/chat/completions"
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and what every call carries.

    ``extra_params`` are added to each body unless the request sets them itself; a parameter whose
    value is None is left out, so a request can remove one. ``include_usage`` asks a stream for its
    usage chunk, ``return_token_ids`` for token ids under the name vLLM gave that field. Fields in
    ``without`` are never sent; ``spelling`` makes text of token-id prompts. Raises
    TargetUnusable for a key or a header that HTTP cannot carry (RFC 9110, 5.1 and 5.5).
    """

    endpoint: Endpoint
    model: str
    api_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    extra_params: Mapping[str, Any] = field(default_factory=dict)
    include_usage: bool = True
    return_token_ids: bool = True
    without: Collection[str] = ()
    spelling: Callable[[Sequence[int]], str] | None = None
    _heads: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be sent, or would be read as another header or another request."""
        if self.api_key is not None and not _VALUE.fullmatch(self.api_key):
            raise TargetUnusable(
                "the API key holds characters that no HTTP header can carry: printable ASCII only"
            )
        _lines(self.headers)

    def payload(self, request: WorkloadRequest) -> bytes:
        """The HTTP request, head and body. Raises TargetUnusable for a header HTTP cannot carry."""
        path = COMPLETIONS if request.messages is None else CHAT
        body = _json(self.body(request))
        head = self._post_head(path)
        if request.headers:
            head += "".join(f"{line}\r\n" for line in _lines(request.headers)).encode("latin-1")
        return b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body)

    def _post_head(self, path: str) -> bytes:
        """Everything before the length; the same for every request, so made once."""
        head = self._heads.get(path)
        if head is None:
            head = self._heads[path] = self.head("POST", path, 0).replace(
                b"Content-Length: 0\r\n", b""
            )[:-2]
        return head

    def body(self, request: WorkloadRequest) -> dict[str, Any]:
        """The JSON body."""
        body: dict[str, Any] = {"model": self.model}
        if request.prompt_ids is not None:
            ids = request.prompt_ids
            body["prompt"] = list(ids) if self.spelling is None else self.spelling(ids)
        elif request.prompt_text is not None:
            body["prompt"] = request.prompt_text
        else:
            body["messages"] = list(request.messages or ())
        if request.stream:
            body["stream"] = True
            if self.include_usage:
                body["stream_options"] = {"include_usage": True}
        if self.return_token_ids:
            body["return_token_ids"] = True
        body.update(self.extra_params)
        body.update(request.params)
        left_out = self.without
        return {k: v for k, v in body.items() if v is not None and k not in left_out}

    def head(self, method: str, path: str, content_length: int | None = None) -> bytes:
        """Request line and headers. ``identity`` because a compressed stream is a late stream."""
        headers = {
            "Host": self.endpoint.authority,
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",
            "User-Agent": "isobatch",
        }
        if content_length is not None:
            headers["Content-Type"] = "application/json"
            headers["Content-Length"] = str(content_length)
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        headers.update(self.headers)
        lines = [f"{method} {self.endpoint.path(path)} HTTP/1.1", *_lines(headers)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _lines(headers: Mapping[str, str]) -> list[str]:
    """The lines of these headers. Raises TargetUnusable for one that HTTP cannot carry."""
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise TargetUnusable(f"{name!r} is no name of an HTTP header")
        if not _VALUE.fullmatch(value):
            raise TargetUnusable(f"the value of header {name} is not printable ASCII on one line")
    return [f"{name}: {value}" for name, value in headers.items()]


def _json(document: dict[str, Any]) -> bytes:
    """JSON bytes, also of numbers that do not fit 64 bits: a check may want to send those."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return json.dumps(document).encode()
