"""``POST /v1/completions``: the table of its fields and the shape of its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from reference_engine.server.answer_shape import StreamOptions
from reference_engine.server.errors import ApiError
from reference_engine.server.fields import Boolean, Field, Integer, Only, read_table
from reference_engine.server.generation import ChoiceDelta, GenerationPlan, Prompt
from reference_engine.server.limits import Limits
from reference_engine.server.prompts import PromptForm, encode_prompts
from reference_engine.server.sampling_fields import (
    MAX_TOKENS,
    allowed_tokens,
    check_together,
    room,
    sampling_params,
    shared_fields,
)
from reference_engine.server.served_model import ServedModel
from reference_engine.server.token_scores import CompletionLogprobs, TokenSpelling, prompt_scores

DEFAULT_MAX_TOKENS = 16


def completion_fields(limits: Limits) -> tuple[Field, ...]:
    """The table of the request body."""
    return (
        Field(
            "prompt",
            PromptForm(limits.max_prompts),
            required=True,
            about="A text, texts, token ids, or lists of token ids.",
        ),
        Field(
            "max_tokens",
            Integer(0, MAX_TOKENS),
            about=f"{DEFAULT_MAX_TOKENS} if not given; 0 only with echo or prompt_logprobs.",
        ),
        Field("logprobs", Integer(0, limits.max_logprobs), about="So many alternatives a token."),
        Field("echo", Boolean(), False, about="Begin the text with the prompt."),
        Field("best_of", Only((1,)), about="Only 1 is offered."),
        Field("suffix", Only(("",)), about="Not offered."),
        *shared_fields(limits),
    )


@dataclass(frozen=True, slots=True)
class CompletionShape:
    """How a completions answer is written, whole and in chunks."""

    plan: GenerationPlan
    options: StreamOptions
    spelling: TokenSpelling
    logprobs: bool
    echo: bool
    return_token_ids: bool
    prompt_logprobs: bool
    whole_object: ClassVar[str] = "text_completion"
    chunk_object: ClassVar[str] = "text_completion"

    def opening(self) -> list[dict[str, Any]]:
        """Nothing comes before the first token."""
        return []

    def chunk_choice(self, delta: ChoiceDelta) -> dict[str, Any]:
        """A chunk is a whole answer of one token."""
        return self.whole_choice((delta,))

    def whole_choice(self, deltas: Sequence[ChoiceDelta]) -> dict[str, Any]:
        """Text, ids, log-probabilities and the end, as far as these deltas go."""
        first, last = deltas[0], deltas[-1]
        prompt = self.plan.prompts[first.index // self.plan.sampling.n]
        text = "".join(delta.text for delta in deltas)
        echoed = self._prompt_text(prompt) if self.echo else ""
        choice: dict[str, Any] = {
            "index": first.index,
            "text": echoed + text if first.first else text,
            "logprobs": self._logprobs(deltas, prompt, len(echoed)) if self.logprobs else None,
            "finish_reason": last.finish_reason,
            "stop_reason": last.stop_reason,
        }
        if self.return_token_ids:
            choice["token_ids"] = [d.token_id for d in deltas if d.token_id is not None]
            if first.first:
                choice["prompt_token_ids"] = prompt.ids
        if self.prompt_logprobs and first.first:
            choice["prompt_logprobs"] = prompt_scores(self.spelling, first.prompt_logprobs or ())
        return choice

    def whole_extra(self, choices: Sequence[Sequence[ChoiceDelta]]) -> dict[str, Any]:
        """Everything is in the choices."""
        return {}

    def _logprobs(
        self, deltas: Sequence[ChoiceDelta], prompt: Prompt, echoed_chars: int
    ) -> dict[str, Any]:
        rows = CompletionLogprobs(self.spelling)
        if self.echo and deltas[0].first:
            skip = self.plan.skip_special_tokens
            decoder = self.spelling.codec.decoder(skip_special_tokens=skip)
            offset = 0
            for token_id, scores in zip(prompt.ids, deltas[0].prompt_logprobs or (), strict=False):
                rows.add(token_id, scores, offset)
                offset += len(decoder.push(token_id))
        for delta in deltas:
            if delta.token_id is not None:
                rows.add(delta.token_id, delta.logprobs, echoed_chars + delta.text_offset)
        return rows.to_json()

    def _prompt_text(self, prompt: Prompt) -> str:
        if prompt.text is not None:
            return prompt.text
        codec, skip = self.spelling.codec, self.plan.skip_special_tokens
        return codec.decode(prompt.ids, skip_special_tokens=skip)


async def parse_completion(
    body: Mapping[str, Any], served: ServedModel, response_id: str
) -> CompletionShape:
    """Check a body and plan its generation. Raises ApiError."""
    values = read_table(completion_fields(served.limits), body)
    check_together(values)
    prompts = await encode_prompts(
        served.codec, values["prompt"], "prompt", add_special_tokens=values["add_special_tokens"]
    )
    return CompletionShape(
        plan=_plan(values, prompts, served, response_id),
        options=StreamOptions.from_values(values),
        spelling=TokenSpelling(served.codec, values["return_tokens_as_token_ids"]),
        logprobs=values["logprobs"] is not None,
        echo=values["echo"],
        return_token_ids=values["return_token_ids"],
        prompt_logprobs=values["prompt_logprobs"] is not None,
    )


def _plan(
    values: dict[str, Any], prompts: tuple[Prompt, ...], served: ServedModel, response_id: str
) -> GenerationPlan:
    left = min(room(len(p.ids), served.max_context_tokens, "prompt") for p in prompts)
    max_tokens = values["max_tokens"]
    scored = values["prompt_logprobs"]
    if values["echo"] and values["logprobs"] is not None:
        scored = max(scored or 0, values["logprobs"])
    if max_tokens == 0 and not values["echo"] and scored is None:
        raise ApiError(
            "max_tokens must be at least 1, or 0 together with echo or prompt_logprobs",
            param="max_tokens",
            code="invalid_value",
        )
    allowed = allowed_tokens(max_tokens, left, DEFAULT_MAX_TOKENS, "max_tokens")
    sampling = sampling_params(
        {**values, "prompt_logprobs": scored},
        max_tokens=max(1, allowed),
        logprobs=values["logprobs"],
        vocab_size=served.codec.vocab_size,
    )
    return GenerationPlan(
        response_id=response_id,
        prompts=prompts,
        sampling=sampling,
        stop=values["stop"],
        include_stop=values["include_stop_str_in_output"],
        skip_special_tokens=values["skip_special_tokens"],
        cache_salt=values["cache_salt"],
        priority=values["priority"],
        prompt_only=max_tokens == 0,
    )
