"""Which server is this, and which version: asked of the server itself, never guessed.

Servers tell in different places: the owner of the model in ``/v1/models``, ``/version`` (vLLM and
our own), ``/props`` (llama.cpp), ``/get_server_info`` (SGLang), ``/info`` (TGI). Where none
answers, the field stays None and its source unknown.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

_NAMES: Final[Mapping[str, str]] = {
    "isobatch": "isobatch",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llamacpp": "llama.cpp",
    "llama.cpp": "llama.cpp",
    "transformers": "transformers serve",
    "huggingface": "transformers serve",
    "mlx": "mlx-lm",
    "tgi": "TGI",
}
_VERSION_PLACES: Final = (
    ("/version", "version"),
    ("/props", "build_info"),
    ("/get_server_info", "version"),
    ("/info", "version"),
)
_MOST_BYTES: Final = 1 << 20
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def discover_server(
    url: str, *, api_key: str | None = None, model: str | None = None, timeout_s: float = 3.0
) -> dict[str, Any]:
    """The fields ``name``, ``version``, ``dtype`` and ``sources`` that the server tells of itself.

    Fields it does not tell are left out. Never raises for what the server does.
    """
    found: dict[str, Any] = {}
    asked = _Asked(url.rstrip("/").removesuffix("/v1"), api_key, timeout_s)
    document = _model_document(asked.get("/v1/models"), model)
    owner = str(document.get("owned_by", "")).lower()
    name = _NAMES.get(owner) or _NAMES.get(asked.server_header.split("/")[0].lower())
    if name is not None:
        found["name"] = name
    if isinstance(dtype := document.get("dtype"), str):
        found["dtype"] = dtype
    for path, field in _VERSION_PLACES:
        answer = asked.get(path)
        if isinstance(answer, dict) and isinstance(answer.get(field), str):
            found["version"] = answer[field]
            break
    return {**found, "sources": dict.fromkeys(found, "discovered")}


class _Asked:
    """Small GET requests to one server; None for anything but JSON and 200."""

    def __init__(self, url: str, api_key: str | None, timeout_s: float) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout_s = timeout_s
        self.server_header = ""

    def get(self, path: str) -> Any:
        request = urllib.request.Request(self._url + path, headers=self._headers)
        try:
            with _OPENER.open(request, timeout=self._timeout_s) as answer:
                self.server_header = self.server_header or answer.headers.get("Server", "")
                return json.loads(answer.read(_MOST_BYTES))
        except (OSError, ValueError, RecursionError):
            return None


def _model_document(answer: Any, model: str | None) -> Mapping[str, Any]:
    """The entry of the model in ``/v1/models``, or the first one."""
    rows = answer.get("data") if isinstance(answer, dict) else None
    documents = (
        [row for row in rows or () if isinstance(row, dict)] if isinstance(rows, list) else []
    )
    named = [row for row in documents if row.get("id") == model]
    return (named or documents or [{}])[0]
