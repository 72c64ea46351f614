"""The proof that an exported probe is its rule: transformers' own model against the integers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from reference_engine.probe.config import BOS_ID, FIRST_BYTE_ID, ProbeConfig
from reference_engine.probe.rule import Rule
from reference_engine.probe.stored_weights import load_with_weights
from reference_engine.probe.vocabulary import vocabulary

BOUNDARIES: Final = (16, 32, 64, 128, 256)
LONGEST_PROMPT_TOKENS: Final = 1500


@dataclass(frozen=True, slots=True)
class Proof:
    """What was compared and what came out.

    ``positions`` logits rows were compared teacher-forced, each prompt was also put through
    ``generate``. ``wrong_positions`` and ``wrong_answers`` must be 0. ``smallest_margin`` is the
    least top-1 minus top-2 logit; ``largest_activation`` the greatest magnitude that any module's
    output had, which float16 limits to 65,504.
    """

    model: str
    weights: str
    dtype: str
    prompts: int
    positions: int
    wrong_positions: int
    answers: int
    wrong_answers: int
    smallest_margin: float
    largest_activation: float

    @property
    def holds(self) -> bool:
        """Whether every token was right."""
        return self.wrong_positions == 0 and self.wrong_answers == 0

    def to_json(self) -> dict[str, Any]:
        """A plain JSON object."""
        return asdict(self)


def proof_prompts(
    config: ProbeConfig, count: int, seed: int = 0, *, printable: bool = False
) -> list[list[int]]:
    """``count`` prompts of 1 to 1,500 tokens, as ids: page boundaries +-1, then random lengths.

    Besides random bytes there are the prompts that are hardest on the sums: one byte all along, and
    one byte for a half and its opposite for the other, so that a rounding error would add up.
    ``printable`` ones are ASCII text, for servers that take nothing else; BOS is their tokenizer's.
    """
    rng = random.Random(seed)
    first, last = (FIRST_BYTE_ID + byte for byte in ((0x20, 0x7E) if printable else (0, 255)))
    lengths = [1, 2, 3, LONGEST_PROMPT_TOKENS - 1, LONGEST_PROMPT_TOKENS]
    lengths += [b + shift for b in BOUNDARIES for shift in (-1, 0, 1)]
    while len(lengths) < count:
        lengths.append(round(LONGEST_PROMPT_TOKENS ** rng.random()))
    prompts = []
    for index, length in enumerate(lengths[:count]):
        body = [rng.randint(first, last) for _ in range(length - 1)]
        if index % 20 == 10:
            body = [body[0]] * len(body) if body else body
        if index % 20 == 15:
            body = _one_sided(config, body, range(first, last + 1)) if body else body
        prompts.append([BOS_ID, *body])
    return prompts


def context_prompt(config: ProbeConfig, answer_tokens: int = 24, seed: int = 0) -> list[int]:
    """A prompt that fills the context of ``config`` but for an answer of ``answer_tokens``."""
    rng = random.Random(seed)
    tokens = config.max_context_tokens - answer_tokens
    return [BOS_ID] + [rng.randrange(FIRST_BYTE_ID, FIRST_BYTE_ID + 256) for _ in range(tokens - 1)]


def _one_sided(config: ProbeConfig, body: Sequence[int], ids: range) -> list[int]:
    """One token for the first half, then its opposite in every sign bit: all sums end near 0."""
    signs, token_id, tokens = vocabulary(config).signs, body[0], len(body)
    wanted = signs[token_id] ^ ((1 << config.sign_bits) - 1)
    opposite = next(i for i in ids if signs[i] == wanted)
    return [token_id] * (tokens // 2) + [opposite] * (tokens - tokens // 2)


def prove(
    config: ProbeConfig,
    directory: str | Path,
    dtype: str,
    prompts: Sequence[Sequence[int]],
    *,
    answer_tokens: int = 24,
    generate_every: int = 1,
    weights: str = "stored",
) -> Proof:
    """Compare the exported model in ``directory``, run in ``dtype``, with the rule of ``config``.

    Every position of every prompt and its answer is compared in one forward pass; every
    ``generate_every``-th prompt is also answered by ``generate``, token by token over its cache.
    ``weights`` is one of `stored_weights.WEIGHTS`: how the matrices are held. Raises ImportError
    when a library for them is missing.
    """
    import torch

    model, rule = load_with_weights(directory, dtype, weights), Rule(config)
    right = [list(rule.generate(prompt, answer_tokens).token_ids) for prompt in prompts]
    positions = wrong_positions = wrong_answers = 0
    margin = float("inf")
    generated = range(0, len(prompts), generate_every)
    with torch.no_grad():
        with _largest_output(model) as largest:
            for prompt, answer in zip(prompts, right, strict=True):
                ids = [*prompt, *answer]
                wrong, smallest = _forward(model, rule, ids)
                margin, positions = min(margin, smallest), positions + len(ids)
                wrong_positions += wrong
        for index in generated:
            asked = torch.tensor([prompts[index]])
            made = model.generate(asked, max_new_tokens=answer_tokens, do_sample=False)
            wrong_answers += made[0, asked.shape[1] :].tolist() != right[index]
    return Proof(
        config.name,
        weights,
        dtype,
        len(prompts),
        positions,
        wrong_positions,
        len(generated),
        wrong_answers,
        margin,
        largest[0],
    )


def _forward(model: Any, rule: Rule, ids: Sequence[int]) -> tuple[int, float]:
    """How many likeliest tokens are not the rule's, and the smallest lead of a likeliest one."""
    import torch

    best = model(torch.tensor([ids])).logits[0].float().topk(2)
    wrong = best.indices[:, 0] != torch.tensor(rule.followers(ids))
    return int(wrong.sum()), float((best.values[:, 0] - best.values[:, 1]).min())


@contextmanager
def _largest_output(model: Any) -> Iterator[list[float]]:
    """Watch every module's output while the block runs; the list's one entry is the maximum."""
    import torch

    largest = [0.0]

    def look(_module: Any, _inputs: Any, output: Any) -> None:
        for tensor in output if isinstance(output, tuple) else (output,):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                largest[0] = max(largest[0], float(tensor.abs().max()))

    hooks = [module.register_forward_hook(look) for module in model.modules()]
    try:
        yield largest
    finally:
        for hook in hooks:
            hook.remove()
