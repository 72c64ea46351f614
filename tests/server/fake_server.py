"""``python -m tests.server.fake_server [seconds a step]``: the real server, the fake engine."""

from __future__ import annotations

import asyncio
import logging
import sys
import time

from reference_engine.request import TokenEvent
from reference_engine.server.engine_host import EngineHost
from reference_engine.server.limits import Limits
from reference_engine.server.metrics import ServerMetrics
from reference_engine.server.served_model import ModelFacts, ServedModel
from reference_engine.server.serving import Listen, Server
from reference_engine.server.text_codec import TextCodec
from tests.server.conftest import byte_tokenizer
from tests.server.fake_engine import VOCAB_SIZE, FakeEngine


class PacedEngine(FakeEngine):
    """A step takes a fixed time."""

    step_s = 0.01

    def step(self) -> list[TokenEvent]:
        time.sleep(self.step_s)
        return super().step()


def main() -> None:
    """Serve until a signal comes."""
    logging.basicConfig(level=logging.INFO)
    PacedEngine.step_s = float(sys.argv[1])
    host = EngineHost(PacedEngine)
    codec = TextCodec(byte_tokenizer(), VOCAB_SIZE)
    served = ServedModel(
        name="fake-model",
        host=host,
        limits=Limits(drain_s=float(sys.argv[2])),
        metrics=ServerMetrics(lambda: host.stats, lambda: host.live_requests),
        facts=ModelFacts(codec, 4096),
    )

    async def serve() -> None:
        def announce(line: str) -> None:
            print(line, flush=True)

        await Server(served, Listen(port=0).bind(), announce=announce).run()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
