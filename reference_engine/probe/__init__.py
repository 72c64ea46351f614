"""Probe checkpoints: models whose every output token is known in integers.

The weights of a probe are compiled from a small integer rule, so the right answer to any prompt is
known exactly, while the model is an ordinary checkpoint that any engine loads. `Rule` is the oracle
and needs no torch; `export_probe` writes the checkpoint.
"""

from reference_engine.probe.chat import CHAT_TEMPLATE, chat_prompt_ids, chat_text
from reference_engine.probe.config import VARIANTS, ProbeConfig
from reference_engine.probe.dice import dice_logits, token_probabilities
from reference_engine.probe.export import DTYPES, ExportRefused, export_probe
from reference_engine.probe.load import NotAProbe, load_probe_config
from reference_engine.probe.rule import Rule, RuleAnswer, RuleState, RuleStep
from reference_engine.probe.vocabulary import decode_tokens, encode_text, vocabulary

__all__ = [
    "CHAT_TEMPLATE",
    "DTYPES",
    "VARIANTS",
    "ExportRefused",
    "NotAProbe",
    "ProbeConfig",
    "Rule",
    "RuleAnswer",
    "RuleState",
    "RuleStep",
    "chat_prompt_ids",
    "chat_text",
    "decode_tokens",
    "dice_logits",
    "encode_text",
    "export_probe",
    "load_probe_config",
    "token_probabilities",
    "vocabulary",
]
