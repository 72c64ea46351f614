"""Print a digest of the answers of every family to a fixed workload, with so many threads.

Run as ``python -m tests.engine.digest THREADS``: the digest is the same in every process.
"""

from __future__ import annotations

import hashlib
import sys

import torch

from reference_engine.engine import Engine, EngineConfig
from reference_engine.model import LoadedModel
from reference_engine.request import Request, SamplingParams
from tests.engine.families import FAMILIES, exact
from tests.engine.tiny import VOCAB, drain, tiny_model


def main(threads: int) -> None:
    torch.set_num_threads(threads)
    answers = [answers_of(model) for model in (tiny_model(), *map(exact, FAMILIES))]
    print(hashlib.sha256(repr(answers).encode()).hexdigest())


def answers_of(model: LoadedModel) -> list[object]:
    """What the engine answers, in order of request."""
    engine = Engine(model, EngineConfig(page_size=8, num_pages=40, token_budget=24))
    answers = drain(
        engine,
        [
            Request(
                f"r{i}",
                tuple(3 + (i * 37 + k * k * 5) % (VOCAB - 3) for k in range(3 + 17 * i)),
                SamplingParams(max_tokens=8, temperature=i % 2, seed=i, logprobs=3),
            )
            for i in range(6)
        ],
    )
    return sorted(answers.items())


if __name__ == "__main__":
    main(int(sys.argv[1]))
