"""Everything that request handlers share: the model's facts, the engine's host, the limits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from aiohttp import web

from reference_engine.faults import FaultRun
from reference_engine.server.answers import Answers
from reference_engine.server.engine_host import EngineHost, HostState
from reference_engine.server.errors import ApiError, unavailable
from reference_engine.server.limits import Limits
from reference_engine.server.metrics import ServerMetrics
from reference_engine.server.response_ids import ResponseIds
from reference_engine.server.text_codec import TextCodec
from reference_engine.server.text_streams import TextStreams


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known once the model is loaded.

    ``engine`` goes into ``/debug/steps`` as it is; ``dtype`` is that of the weights.
    ``max_request_tokens`` is what the cache can hold of the context; None: all of it.
    """

    codec: TextCodec
    max_context_tokens: int
    engine: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    max_request_tokens: int | None = None


@dataclass
class ServedModel:
    """One model behind one server. ``name`` is the id that clients use.

    ``facts`` is None until the model is loaded; `admit` refuses every request until then.
    """

    name: str
    host: EngineHost
    limits: Limits
    metrics: ServerMetrics
    facts: ModelFacts | None = None
    log_requests: bool = False
    draining: bool = False
    created_s: int = field(default_factory=lambda: int(time.time()))
    ids: ResponseIds = field(default_factory=ResponseIds)
    answers: Answers = field(init=False)
    fault_run: FaultRun | None = None

    def __post_init__(self) -> None:
        self.answers = Answers(self.name)

    @property
    def parts(self) -> Mapping[str, object]:
        """The objects on which a fault of the server may be installed, once the model is loaded."""
        return {
            "server_host": self.host,
            "server_ids": self.ids,
            "server_texts": self.texts,
            "server_answers": self.answers,
            "server_model": self,
        }

    @cached_property
    def texts(self) -> TextStreams:
        """Where the text of choices comes from. Raises ApiError 503 before the model is loaded."""
        return TextStreams(self.codec)

    @property
    def codec(self) -> TextCodec:
        """The tokenizer. Raises ApiError 503 before the model is loaded."""
        return self._loaded.codec

    @property
    def max_context_tokens(self) -> int:
        """Prompt and answer together. Raises ApiError 503 before the model is loaded."""
        return self._loaded.max_context_tokens

    @property
    def max_request_tokens(self) -> int:
        """What the server states as its limit: the context, or less where the cache is smaller.

        Raises ApiError 503 before the model is loaded.
        """
        held = self._loaded.max_request_tokens
        return self.max_context_tokens if held is None else min(held, self.max_context_tokens)

    @property
    def dtype(self) -> str:
        """The weights' type. Raises ApiError 503 before the model is loaded."""
        return self._loaded.dtype

    @property
    def _loaded(self) -> ModelFacts:
        if self.facts is None:
            raise unavailable("the model is still being loaded")
        return self.facts

    def admit(self, body: Mapping[str, Any], engine_requests: int) -> None:
        """Refuse what cannot be served now: not ready, wrong model, too many live requests.

        Raises ApiError 503, 404 or 429.
        """
        if self.draining:
            raise unavailable("the server is shutting down and takes no new requests")
        if self.host.state is not HostState.READY:
            raise unavailable(f"the engine is {self.host.state}")
        name = body.get("model")
        if name is not None and name != self.name:
            raise self.no_such_model(name)
        live = self.host.live_requests
        if live + engine_requests > self.limits.max_live_requests:
            raise ApiError(
                f"{live} requests are queued or running and the limit is "
                f"{self.limits.max_live_requests}; try again later",
                status=429,
                kind="rate_limit_error",
                code="too_many_requests",
                headers={"Retry-After": "1"},
            )

    def refused(self, error: ApiError) -> ApiError:
        """Every error answer passes here on its way out."""
        return error

    def no_such_model(self, name: object) -> ApiError:
        """404, or 400 when the name is not even a string."""
        return ApiError(
            f"there is no model {str(name)[:100]!r} here; this server has {self.name!r}",
            status=404 if isinstance(name, str) else 400,
            param="model",
            code="model_not_found",
        )


SERVED: web.AppKey[ServedModel] = web.AppKey("served", ServedModel)
