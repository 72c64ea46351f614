"""Prompts that a probe takes: ids of its alphabet, and their text where a server wants text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.targets.target import TargetUnusable
from workloads.prompts import TokenAlphabet

if TYPE_CHECKING:
    from reference_engine.probe import ProbeConfig

_PREFIX = "isobatch-probe-"


def probe_served_as(model: str) -> ProbeConfig | None:
    """The probe that a model id, or the path of its folder, names."""
    name = model.rsplit("/", 1)[-1]
    if not name.startswith(_PREFIX):
        return None
    from reference_engine.probe import VARIANTS

    return next((c for c in VARIANTS.values() if c.name == name), None)


def probe_alphabet(model: str) -> TokenAlphabet | None:
    """The ids to draw a probe's prompts from, None for a model that is no known probe."""
    config = probe_served_as(model)
    if config is None:
        return None
    from reference_engine.probe import vocabulary

    return TokenAlphabet(vocabulary(config).output_ids, config.bos_id)


@dataclass(frozen=True, slots=True)
class ProbeSpelling:
    """Spells the ids of a probe's prompt; the server's tokenizer puts BOS in front again."""

    config: ProbeConfig

    def __call__(self, ids: Sequence[int]) -> str:
        """The text. Raises TargetUnusable where its tokens would be others."""
        from reference_engine.probe import decode_tokens, encode_text

        text = bytes(decode_tokens(self.config, ids[1:])).decode("utf-8", "replace")
        if tuple(encode_text(self.config, text)) != tuple(ids):
            raise TargetUnusable(
                f"the server takes prompts as text only, and prompts of {self.config.name} "
                "have none: use --prompts text"
            )
        return text


def spelling_for(model: str, choice: str) -> ProbeSpelling | None:
    """How to spell the prompts that `--prompts CHOICE` gives, None where that cannot be done."""
    config = probe_served_as(model) if choice == "auto" else None
    return None if config is None else ProbeSpelling(config)
