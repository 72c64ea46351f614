"""The chat template of a probe, and the same prompt in plain Python.

A conversation becomes BOS, then each message as ``[role]content`` and a newline, then
``[assistant]`` where an answer is wanted. So the ids of a chat prompt are known exactly, and
``/v1/chat/completions`` can be judged like any other answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from reference_engine.probe.config import ProbeConfig
from reference_engine.probe.vocabulary import encode_text

CHAT_TEMPLATE: Final = (
    "{{ bos_token }}"
    "{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}{{ '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def chat_text(messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True) -> str:
    """What the template makes of ``messages`` (``role`` and ``content``), without BOS."""
    lines = [f"[{message['role']}]{message['content']}\n" for message in messages]
    return "".join(lines) + ("[assistant]" if add_generation_prompt else "")


def chat_prompt_ids(
    config: ProbeConfig,
    messages: Sequence[Mapping[str, str]],
    *,
    add_generation_prompt: bool = True,
) -> list[int]:
    """The ids of a chat prompt, BOS first."""
    return encode_text(config, chat_text(messages, add_generation_prompt=add_generation_prompt))
