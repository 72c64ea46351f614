"""`HttpTarget`: any OpenAI-compatible server, over real connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.client.discover import Discovery, discover
from harness.client.endpoint import Endpoint
from harness.client.limits import Limits
from harness.client.openai_request import Caller
from harness.client.plain_call import get
from harness.client.pool import ConnectionPool, raise_descriptor_limit
from harness.client.prometheus import read_metrics
from harness.client.workload_run import WorkloadRun
from harness.targets.wording import Wording
from harness.transcript import RequestTranscript, Transcript
from workloads.workload import Workload


class HttpTarget:
    """Sends workloads to a server, as many connections at once as the workload asks for.

    ``model`` is the model id to ask for; without it `/v1/models` is asked and must name exactly
    one. ``extra_params`` go into every request body. ``return_token_ids`` and ``include_usage``
    can be switched off for servers that refuse those fields; ``wording``, set after it is made,
    says how else requests are put (`find_wording`). Create and use it inside one running
    event loop. Raises TargetUnusable where the URL cannot be read, or a key or header not be sent.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra_params: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        return_token_ids: bool = True,
        include_usage: bool = True,
        verify_tls: bool = True,
        keep_raw: bool = True,
    ) -> None:
        self.endpoint = Endpoint.parse(url)
        self.limits = limits or Limits()
        self.model = model
        self.keep_raw = keep_raw
        self._api_key = api_key
        self._headers = dict(headers or {})
        self._extra_params = dict(extra_params or {})
        self._return_token_ids = return_token_ids
        self._include_usage = include_usage
        self._verify_tls = verify_tls
        self.wording = Wording()
        self.caller()  # refuses a bad key or header now, not at the first request
        raise_descriptor_limit()
        self.pool = ConnectionPool(self.endpoint, self.limits, verify_tls=verify_tls)

    @property
    def name(self) -> str:
        """The URL."""
        return self.endpoint.url

    async def discover(self) -> Discovery:
        """Ask the server what it serves. Raises TargetUnusable with one sentence."""
        found = await discover(
            self.endpoint,
            self.limits,
            api_key=self._api_key,
            headers=self._headers,
            verify_tls=self._verify_tls,
        )
        if self.model is None:
            self.model = found.only_model()
        return found

    def caller(self) -> Caller:
        """What every request carries. `model` must be known."""
        return Caller(
            self.endpoint,
            self.model or "",
            api_key=self._api_key,
            headers=self._headers,
            extra_params=self._extra_params,
            include_usage=self._include_usage,
            return_token_ids=self._return_token_ids,
            without=self.wording.without.keys(),
            spelling=self.wording.spelling,
        )

    async def run(
        self,
        workload: Workload,
        *,
        on_end: Callable[[RequestTranscript], None] | None = None,
        on_drained: Callable[[], None] | None = None,
        on_settled: Callable[[RequestTranscript], None] | None = None,
        start_at_s: float | None = None,
    ) -> Transcript:
        """Send every request when it is due and return what came back.

        ``on_end`` is told of each request that ended, ``on_drained`` when all have; ``on_settled``
        is given each once it is whole, and must not raise. The run begins when all is prepared,
        or at ``start_at_s`` on the monotonic clock.
        Raises TargetUnusable only if no model was given and the server cannot name one.
        """
        if self.model is None:
            await self.discover()
        return await WorkloadRun(
            workload,
            self.caller(),
            self.pool,
            self.limits,
            keep_raw=self.keep_raw,
            on_end=on_end,
            on_drained=on_drained,
            on_settled=on_settled,
            start_at_s=start_at_s,
            ends_by_closing=self.wording.ends_by_closing,
        ).finish()

    async def metrics(self) -> dict[str, float]:
        """The server's Prometheus values, labels summed over; empty where it shows none."""
        answer = await get(self.pool, self.caller(), "/metrics", self.limits)
        if answer.status != 200:
            return {}
        return read_metrics(answer.body.decode("utf-8", "replace"))

    async def close(self) -> None:
        """Close the connections."""
        self.pool.close()
