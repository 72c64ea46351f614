"""A probe's tokenizer as the `tokenizers` library stores it: one token a byte, BOS in front."""

from __future__ import annotations

import json
from typing import Any

from reference_engine.probe.chat import CHAT_TEMPLATE
from reference_engine.probe.config import BOS_ID, EOS_ID, PAD_ID, UNDEFINED_ID, ProbeConfig
from reference_engine.probe.vocabulary import SPECIAL_TEXTS, vocabulary


def byte_characters() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte, which byte-level tokenizers use in their files."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {value: chr(value) for value in printable}
    for value in range(256):
        table.setdefault(value, chr(256 + len(table) - len(printable)))
    return table


def tokenizer_document(config: ProbeConfig) -> dict[str, Any]:
    """The content of ``tokenizer.json``: byte-level BPE whose only merges make output tokens."""
    characters = byte_characters()
    table = vocabulary(config)
    names = ["".join(characters[value] for value in text) for text in table.texts]
    merged = [table.texts[i] for i in table.output_ids if len(table.texts[i]) > 1]
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(token_id) for token_id in SPECIAL_TEXTS],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": _bos_in_front(),
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {name: token_id for token_id, name in enumerate(names)},
            "merges": [[characters[text[0]], characters[text[1]]] for text in merged],
        },
    }


def _added(token_id: int) -> dict[str, Any]:
    """UNDEFINED is not special: where it appears, it must be seen."""
    return {
        "id": token_id,
        "content": SPECIAL_TEXTS[token_id],
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": token_id != UNDEFINED_ID,
    }


def _bos_in_front() -> dict[str, Any]:
    bos = SPECIAL_TEXTS[BOS_ID]
    start = {"SpecialToken": {"id": bos, "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [start, first],
        "pair": [start, first, second],
        "special_tokens": {bos: {"id": bos, "ids": [BOS_ID], "tokens": [bos]}},
    }


def tokenizer_config_document(config: ProbeConfig) -> dict[str, Any]:
    """The content of ``tokenizer_config.json``."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL_TEXTS[BOS_ID],
        "eos_token": SPECIAL_TEXTS[EOS_ID],
        "pad_token": SPECIAL_TEXTS[PAD_ID],
        "add_bos_token": True,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
        "model_max_length": config.max_context_tokens,
    }


def as_json_text(document: dict[str, Any]) -> str:
    """JSON as the exported files have it: indented, one line at the end."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
