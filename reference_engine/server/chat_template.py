"""Chat messages to text, by the model's own Jinja template, in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from reference_engine.server.errors import ApiError
from reference_engine.server.text_codec import TextCodec


def render_chat(
    codec: TextCodec, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool
) -> str:
    """The prompt text. Raises ApiError when there is no template or it refuses the messages."""
    if codec.chat_template is None:
        raise ApiError(
            "this model has no chat template; use /v1/completions",
            param="messages",
            code="no_chat_template",
        )
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _raise
    try:
        template = environment.from_string(codec.chat_template)
        return template.render(
            messages=list(messages),
            add_generation_prompt=add_generation_prompt,
            **codec.special_texts,
        )
    except TemplateError as error:
        raise ApiError(
            f"the chat template refused the messages: {error}",
            param="messages",
            code="invalid_value",
        ) from None


def _raise(message: str) -> NoReturn:
    """What templates call to refuse a conversation."""
    raise TemplateError(message)
