"""Is there an LLM server at this URL, and what does it serve? One sentence where not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.client.endpoint import Endpoint
from harness.client.limits import Limits
from harness.client.openai_request import Caller
from harness.client.plain_call import PlainAnswer, get
from harness.client.pool import ConnectionPool
from harness.targets.target import TargetUnusable
from harness.transcript import Ending


@dataclass(frozen=True, slots=True)
class Discovery:
    """What `/v1/models` said. ``server`` is the Server header, "" if none."""

    url: str
    models: tuple[str, ...]
    documents: tuple[Mapping[str, Any], ...]
    server: str = ""

    def only_model(self) -> str:
        """The one model. Raises TargetUnusable if there are several."""
        if len(self.models) > 1:
            names = ", ".join(self.models[:5]) + (", ..." if len(self.models) > 5 else "")
            raise TargetUnusable(f"{self.url} serves several models ({names}); choose with --model")
        return self.models[0]


async def discover(
    endpoint: Endpoint,
    limits: Limits | None = None,
    *,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    verify_tls: bool = True,
) -> Discovery:
    """Ask `/v1/models`. Raises TargetUnusable with one sentence that says what is wrong."""
    limits = limits or Limits()
    pool = ConnectionPool(endpoint, limits, verify_tls=verify_tls)
    caller = Caller(endpoint, "", api_key=api_key, headers=headers or {})
    try:
        answer = await get(pool, caller, "/v1/models", limits)
    finally:
        pool.close()
    if answer.status is None:
        raise TargetUnusable(_no_answer(endpoint, answer))
    if answer.status in (401, 403):
        what = "refused the API key" if api_key else "needs an API key (--api-key)"
        raise TargetUnusable(f"{endpoint.url} {what}: HTTP status {answer.status}")
    if 300 <= answer.status < 400:
        place = answer.headers.get("location", "elsewhere")
        raise TargetUnusable(f"{endpoint.url} redirects to {place}; give that URL instead")
    if answer.status in (502, 503):
        raise TargetUnusable(
            f"{endpoint.url} is not ready: GET {endpoint.path('/v1/models')} answered HTTP status "
            f"{answer.status}"
        )
    documents = _models(answer)
    if not documents:
        raise TargetUnusable(
            f"{endpoint.url} is no OpenAI-compatible server: GET {endpoint.path('/v1/models')} "
            f"answered HTTP status {answer.status} without a list of models"
        )
    names = tuple(str(d["id"]) for d in documents)
    return Discovery(endpoint.url, names, tuple(documents), answer.headers.get("server", ""))


def _no_answer(endpoint: Endpoint, answer: PlainAnswer) -> str:
    if answer.ending is Ending.CONNECT_FAILED:
        return f"{endpoint.url} cannot be reached: {answer.error}"
    if answer.ending is Ending.TIMEOUT:
        return f"{endpoint.url} accepts connections but does not answer: {answer.error}"
    return f"{endpoint.url} does not speak HTTP: {answer.error}"


def _models(answer: PlainAnswer) -> list[dict[str, Any]]:
    document = answer.json()
    if answer.status != 200 or not isinstance(document, dict):
        return []
    data = document.get("data")
    if not isinstance(data, list):
        return []
    return [d for d in data if isinstance(d, dict) and isinstance(d.get("id"), str)]
