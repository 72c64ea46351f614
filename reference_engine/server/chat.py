"""``POST /v1/chat/completions``: the table of its fields and the shape of its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from reference_engine.server.answer_shape import StreamOptions
from reference_engine.server.chat_template import render_chat
from reference_engine.server.errors import ApiError
from reference_engine.server.fields import (
    Boolean,
    Field,
    Integer,
    ListOf,
    Nested,
    Only,
    Text,
    read_table,
    wrong,
)
from reference_engine.server.generation import ChoiceDelta, GenerationPlan, Prompt
from reference_engine.server.limits import Limits
from reference_engine.server.prompts import encode_text
from reference_engine.server.sampling_fields import (
    MAX_TOKENS,
    allowed_tokens,
    check_together,
    check_vocabulary,
    room,
    sampling_params,
    shared_fields,
)
from reference_engine.server.served_model import ServedModel
from reference_engine.server.token_scores import TokenSpelling, chat_logprob, prompt_scores

ROLES = ("system", "developer", "user", "assistant", "tool")
_TEXT_PART = (
    Field("type", Only(("text",)), required=True),
    Field("text", Text(2**22), required=True),
)


@dataclass(frozen=True, slots=True)
class Content:
    """A message's content: a string, or a list of text parts."""

    def read(self, value: Any, name: str) -> str:
        """The text, parts joined."""
        if isinstance(value, list):
            parts = ListOf(Nested(_TEXT_PART), 1, 64).read(value, name)
            return "".join(part["text"] for part in parts)
        if not isinstance(value, str):
            raise wrong(name, "a string or a list of text parts", value)
        return value

    def schema(self) -> dict[str, Any]:
        """Either."""
        return {"anyOf": [{"type": "string"}, ListOf(Nested(_TEXT_PART), 1, 64).schema()]}


_MESSAGE = (
    Field("role", Only(ROLES), required=True),
    Field("content", Content(), required=True),
    Field("name", Text(128)),
)


MESSAGES = ListOf(Nested(_MESSAGE), 1, 1024)


def chat_fields(limits: Limits) -> tuple[Field, ...]:
    """The table of the request body."""
    tokens = Integer(1, MAX_TOKENS)
    return (
        Field("messages", MESSAGES, required=True),
        Field(
            "max_completion_tokens", tokens, about="What the context has room for, if not given."
        ),
        Field("max_tokens", tokens, about="The older name of max_completion_tokens."),
        Field("logprobs", Boolean(), False, about="Tell the tokens' log-probabilities."),
        Field("top_logprobs", Integer(0, limits.max_logprobs), about="Only with logprobs."),
        Field("add_generation_prompt", Boolean(), True, about="End with the assistant's turn."),
        Field("response_format", Nested((Field("type", Only(("text",)), required=True),))),
        *shared_fields(limits),
    )


@dataclass(frozen=True, slots=True)
class ChatShape:
    """How a chat answer is written, whole and in chunks."""

    plan: GenerationPlan
    options: StreamOptions
    spelling: TokenSpelling
    logprobs: bool
    return_token_ids: bool
    prompt_logprobs: bool
    whole_object: ClassVar[str] = "chat.completion"
    chunk_object: ClassVar[str] = "chat.completion.chunk"

    def opening(self) -> list[dict[str, Any]]:
        """The role of each choice, before any token."""
        return [
            {
                "index": index,
                "delta": {"role": "assistant", "content": ""},
                "logprobs": None,
                "finish_reason": None,
            }
            for index in range(self.plan.sampling.n)
        ]

    def chunk_choice(self, delta: ChoiceDelta) -> dict[str, Any]:
        """The text of one token, and the end with the last."""
        choice = self._choice((delta,))
        choice["delta"] = {"content": delta.text}
        return choice

    def whole_choice(self, deltas: Sequence[ChoiceDelta]) -> dict[str, Any]:
        """The whole message."""
        choice = self._choice(deltas)
        text = "".join(delta.text for delta in deltas)
        choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        return choice

    def whole_extra(self, choices: Sequence[Sequence[ChoiceDelta]]) -> dict[str, Any]:
        """What belongs to the prompt, which all choices share."""
        extra: dict[str, Any] = {}
        if self.return_token_ids:
            extra["prompt_token_ids"] = self.plan.prompts[0].ids
        if self.prompt_logprobs:
            extra["prompt_logprobs"] = prompt_scores(
                self.spelling, choices[0][0].prompt_logprobs or ()
            )
        return extra

    def _choice(self, deltas: Sequence[ChoiceDelta]) -> dict[str, Any]:
        last = deltas[-1]
        choice: dict[str, Any] = {
            "index": last.index,
            "logprobs": self._logprobs(deltas) if self.logprobs else None,
            "finish_reason": last.finish_reason,
            "stop_reason": last.stop_reason,
        }
        if self.return_token_ids:
            choice["token_ids"] = [d.token_id for d in deltas if d.token_id is not None]
        return choice

    def _logprobs(self, deltas: Sequence[ChoiceDelta]) -> dict[str, Any]:
        rows = [chat_logprob(self.spelling, d.logprobs) for d in deltas if d.logprobs is not None]
        return {"content": rows, "refusal": None}


async def parse_chat(body: Mapping[str, Any], served: ServedModel, response_id: str) -> ChatShape:
    """Check a body and plan its generation. Raises ApiError."""
    values = read_table(chat_fields(served.limits), body)
    check_together(values)
    if values["top_logprobs"] is not None and not values["logprobs"]:
        raise ApiError(
            "top_logprobs is only for logprobs=true", param="top_logprobs", code="invalid_value"
        )
    text = render_chat(
        served.codec, values["messages"], add_generation_prompt=values["add_generation_prompt"]
    )
    ids = await encode_text(served.codec, text, add_special_tokens=False)
    if not ids:
        raise ApiError("messages give an empty prompt", param="messages", code="invalid_value")
    check_vocabulary(ids, served.codec.vocab_size, "messages")
    return ChatShape(
        plan=_plan(values, Prompt(ids, text), served, response_id),
        options=StreamOptions.from_values(values),
        spelling=TokenSpelling(served.codec, values["return_tokens_as_token_ids"]),
        logprobs=values["logprobs"],
        return_token_ids=values["return_token_ids"],
        prompt_logprobs=values["prompt_logprobs"] is not None,
    )


def _plan(
    values: dict[str, Any], prompt: Prompt, served: ServedModel, response_id: str
) -> GenerationPlan:
    left = room(len(prompt.ids), served.max_context_tokens, "messages")
    default = max(1, min(left, served.max_request_tokens - len(prompt.ids)))
    newer = values["max_completion_tokens"] is not None
    name = "max_completion_tokens" if newer else "max_tokens"
    sampling = sampling_params(
        values,
        max_tokens=allowed_tokens(values[name], left, default, name),
        logprobs=(values["top_logprobs"] or 0) if values["logprobs"] else None,
        vocab_size=served.codec.vocab_size,
    )
    return GenerationPlan(
        response_id=response_id,
        prompts=(prompt,),
        sampling=sampling,
        stop=values["stop"],
        include_stop=values["include_stop_str_in_output"],
        skip_special_tokens=values["skip_special_tokens"],
        cache_salt=values["cache_salt"],
        priority=values["priority"],
    )
