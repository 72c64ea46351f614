"""The ragged workload of the comparison: random token ids, lognormal prompts, uniform outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import numpy as np

MEDIAN_PROMPT_TOKENS: Final = 100
SIGMA: Final = 0.5
OUTPUT_TOKENS: Final = (8, 96)
FIRST_ORDINARY_ID: Final = 100
"""Lower ids are special tokens in some vocabularies."""


def write_ragged(path: Path, *, requests: int, vocab_size: int, seed: int) -> None:
    """Write ``{"prompts": [[id, ...], ...], "outputs": [tokens, ...]}``."""
    random = np.random.default_rng(seed)
    spread = random.normal(np.log(MEDIAN_PROMPT_TOKENS), SIGMA, requests)
    lengths = np.clip(np.exp(spread), 8, 512).astype(int)
    prompts = [
        random.integers(FIRST_ORDINARY_ID, vocab_size, length).tolist() for length in lengths
    ]
    outputs = random.integers(OUTPUT_TOKENS[0], OUTPUT_TOKENS[1] + 1, requests).tolist()
    path.write_text(json.dumps({"prompts": prompts, "outputs": outputs}), encoding="utf-8")
