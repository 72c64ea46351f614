"""A checkpoint on our own engine, asked what it thinks of tokens: the model behind the reference.

Scores are fp32 log-probabilities. A sequence goes through the model once, all positions together,
and what was learned of each prefix is kept, so the same tokens are never computed twice. All of it
runs in one thread of its own: the event loop that times a server never waits for a model.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from harness.oracles.oracle import NotPredictable

if TYPE_CHECKING:
    from reference_engine.engine import Engine
    from reference_engine.model import LoadedModel
    from reference_engine.server.text_codec import TextCodec

LONGEST_TOKENS: Final = 3072
"""Sequences longer than this are not judged: computing one would hold a run up for minutes."""

_KEPT: Final = 32
_PAGE: Final = 16

Ids = tuple[int, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TokenScores:
    """What the model thinks of the next token after one prefix.

    ``logprobs``: the best `_KEPT` tokens and any other that was asked for, in nat.
    """

    logprobs: Mapping[int, float]
    whole: bool = False

    def best(self, without: Iterable[int] = ()) -> int:
        """The likeliest token that is not forbidden; the lowest id on a tie."""
        barred = frozenset(without)
        allowed = [(-p, token) for token, p in self.logprobs.items() if token not in barred]
        return min(allowed)[1]

    def gap(self, token: int, without: Iterable[int] = ()) -> float:
        """How far below the likeliest token this one is, in nat; a lower bound if not ``knows``."""
        own = self.logprobs.get(token, min(self.logprobs.values()))
        return max(0.0, self.logprobs[self.best(without)] - own)

    def knows(self, token: int) -> bool:
        """Whether the token's own logprob is there."""
        return self.whole or token in self.logprobs


class ReferenceModel:
    """One checkpoint: scores and greedy answers, remembered by prefix."""

    def __init__(self, model: LoadedModel, codec: TextCodec) -> None:
        self.model = model
        self.codec = codec
        self.computed_tokens = 0
        self._scores: dict[Ids, TokenScores] = {}
        self._engine: Engine | None = None
        self._thread = ThreadPoolExecutor(1, "reference oracle", initializer=_one_thread)

    @classmethod
    def load(cls, folder: Path, dtype: str = "float32") -> ReferenceModel:
        """Read a Hugging Face folder. Raises ValueError with one sentence."""
        from transformers.utils.logging import disable_progress_bar

        from reference_engine.model import load_model
        from reference_engine.server.text_codec import TextCodec

        disable_progress_bar()
        model = load_model(folder, dtype=dtype)
        return cls(model, TextCodec.load(folder, model.vocab_size))

    async def forced(self, prompt: Ids, output: Ids) -> list[TokenScores]:
        """Scores after the prompt and after each output token: ``len(output) + 1`` of them.

        The scores before each output token know that token. Raises NotPredictable for a sequence
        that is too long to be computed.
        """
        self._check_length(len(prompt) + len(output))
        prefixes = [(*prompt, *output[:i]) for i in range(len(output) + 1)]
        if not all(self._has(p, t) for p, t in zip(prefixes, (*output, None), strict=True)):
            await self.in_thread(lambda: self._compute(prefixes, output))
        return [self._scores[p] for p in prefixes]

    async def greedy(
        self,
        prompt: Ids,
        max_tokens: int,
        *,
        ends: frozenset[int] = frozenset(),
        min_tokens: int = 0,
    ) -> Ids:
        """The greedy answer, which stops after a token of ``ends``. Raises NotPredictable."""
        self._check_length(len(prompt) + max_tokens)
        return await self.in_thread(lambda: self._greedy(prompt, max_tokens, ends, min_tokens))

    def answers_for(self, duration_s: float) -> Callable[[Sequence[int], int], Ids | None]:
        """A function that gives greedy answers past any end, waiting for each.

        It gives None for a context that is too long or empty, and once ``duration_s`` are over.
        """
        ends_s = time.monotonic() + duration_s

        def answered(context: Sequence[int], tokens: int) -> Ids | None:
            prompt = tuple(context)
            most = min(LONGEST_TOKENS, self.model.max_context_tokens)
            if not prompt or len(prompt) + tokens > most or time.monotonic() > ends_s:
                return None
            return self._thread.submit(self._greedy, prompt, tokens, frozenset(), 0).result()

        return answered

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run ``work`` in the model's own thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _check_length(self, tokens: int) -> None:
        most = min(LONGEST_TOKENS, self.model.max_context_tokens)
        if tokens > most:
            raise NotPredictable(f"{tokens} tokens are more than the {most} that are computed")

    def _has(self, prefix: Ids, token: int | None) -> bool:
        known = self._scores.get(prefix)
        return known is not None and (token is None or known.knows(token))

    def _compute(self, prefixes: Sequence[Ids], output: Ids) -> None:
        from reference_engine.numerics import log_softmax
        from reference_engine.solo import full_logits

        rows = log_softmax(full_logits(self.model, prefixes[-1], last=len(prefixes)))
        self.computed_tokens += len(prefixes[-1])
        for prefix, row, token in zip(prefixes, rows, (*output, None), strict=True):
            self._keep(prefix, _summary(row, token))

    def _keep(self, prefix: Ids, scores: TokenScores) -> None:
        known = self._scores.get(prefix)
        merged = scores if known is None else _merged(known, scores)
        self._scores[prefix] = merged

    def _greedy(self, prompt: Ids, max_tokens: int, ends: frozenset[int], min_tokens: int) -> Ids:
        """Follow what is known; let the engine go on from there."""
        output: list[int] = []
        while len(output) < max_tokens:
            known = self._scores.get((*prompt, *output))
            if known is None:
                self._generate((*prompt, *output), max_tokens - len(output), ends)
                continue
            token = known.best(ends if len(output) < min_tokens else ())
            output.append(token)
            if token in ends:
                break
        return tuple(output)

    def _generate(self, prompt: Ids, max_tokens: int, ends: frozenset[int]) -> None:
        """Continue greedily with a KV cache, and keep what was learned of each prefix."""
        from reference_engine.request import Request, SamplingParams

        engine = self._engine = self._engine or self._new_engine()
        top = min(_KEPT, self.model.vocab_size)
        params = SamplingParams(
            max_tokens=max_tokens, logprobs=top, ignore_eos=True, stop_token_ids=tuple(ends)
        )
        engine.submit(Request("greedy", prompt, params))
        prefix = prompt
        while engine.has_work:
            for event in engine.step():
                if event.token_id is None or event.logprobs is None:
                    raise NotPredictable(f"the reference engine gave up: {event.error}")
                self._keep(prefix, TokenScores(dict(event.logprobs.top)))
                prefix = (*prefix, event.token_id)
                self.computed_tokens += 1

    def _new_engine(self) -> Engine:
        from reference_engine.engine import Engine, EngineConfig

        tokens = min(LONGEST_TOKENS, self.model.max_context_tokens)
        pages = 2 + 2 * math.ceil(tokens / _PAGE)
        return Engine(self.model, EngineConfig(page_size=_PAGE, num_pages=pages, token_budget=512))


def _summary(row: Any, token: int | None) -> TokenScores:
    """The best tokens of a row of log-probabilities, and ``token``. row: [vocab]."""
    kept = min(_KEPT, row.shape[0])
    values, ids = row.topk(kept)
    logprobs = dict(zip(ids.tolist(), values.tolist(), strict=True))
    # topk breaks ties as it likes; the lowest id must be among them, for it is the arg max.
    best = int(row.argmax())
    logprobs[best] = float(row[best])
    if token is not None:
        logprobs[token] = float(row[token])
    return TokenScores(logprobs, whole=kept == row.shape[0])


def _merged(known: TokenScores, new: TokenScores) -> TokenScores:
    logprobs = {**known.logprobs, **new.logprobs}
    return replace(known, logprobs=logprobs, whole=known.whole or new.whole)


def _one_thread() -> None:
    """Two threads on a busy machine stall each other; the server needs the other cores."""
    import torch

    torch.set_num_threads(1)
