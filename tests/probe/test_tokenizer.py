"""The exported tokenizer and the pure-Python one agree on every text, and text round-trips."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from reference_engine.probe import (
    VARIANTS,
    Rule,
    chat_prompt_ids,
    decode_tokens,
    encode_text,
    vocabulary,
)
from reference_engine.probe.tokenizer import as_json_text, tokenizer_document
from tests.probe.conftest import Exported

quick = settings(max_examples=60, derandomize=True, deadline=None, database=None)
PRINTABLE = "abcxyzABCXYZ0123456789 .,:;"


@lru_cache
def tokenizer_of(variant: str) -> Tokenizer:
    return Tokenizer.from_str(as_json_text(tokenizer_document(VARIANTS[variant])))


def on_every_variant(test: Callable[..., None]) -> Callable[..., None]:
    """One variant for each alphabet: nothing else of a variant reaches the tokenizer."""
    return pytest.mark.parametrize("variant", ["eos", "utf8"])(test)


@on_every_variant
@quick
@given(text=st.text(max_size=60))
@example(text="é à – 中文 👩‍👩‍👧 \x00\u2028")
@example(text="a<|eos|>b<|bos|><|undefined|><|eos|")
@example(text="  two  spaces\n\n\ttab ")
def test_both_tokenizers_give_the_same_ids(variant: str, text: str) -> None:
    config = VARIANTS[variant]
    assert encode_text(config, text) == tokenizer_of(variant).encode(text).ids


@on_every_variant
@quick
@given(text=st.text(max_size=60).filter(lambda t: "<|" not in t))
def test_text_round_trips(variant: str, text: str) -> None:
    config = VARIANTS[variant]
    ids = encode_text(config, text)
    assert decode_tokens(config, ids).decode() == text
    assert tokenizer_of(variant).decode(ids) == text


@on_every_variant
@quick
@given(raw=st.binary(max_size=60).filter(lambda b: b"<|" not in b))
def test_bytes_round_trip(variant: str, raw: bytes) -> None:
    config = VARIANTS[variant]
    assert decode_tokens(config, encode_text(config, raw)) == raw


@on_every_variant
@quick
@given(text=st.text(alphabet="isobatch 0123", max_size=20), tokens=st.integers(1, 30))
def test_a_prompt_may_be_an_earlier_prompt_and_its_answer(
    variant: str, text: str, tokens: int
) -> None:
    """The ids of prompt + answer as bytes are the ids of the prompt followed by the answer's."""
    config = VARIANTS[variant]
    ids = encode_text(config, text)
    answer = list(Rule(config).generate(ids, tokens, ignore_eos=True).token_ids)
    if config.eos_id in answer:
        answer = answer[: answer.index(config.eos_id)]
    raw = text.encode() + decode_tokens(config, answer)
    assert encode_text(config, raw) == ids + answer


@on_every_variant
def test_printable_characters_are_one_token_each(variant: str) -> None:
    assert len(encode_text(VARIANTS[variant], PRINTABLE)) == 1 + len(PRINTABLE)


@on_every_variant
def test_no_output_text_begins_another(variant: str) -> None:
    config = VARIANTS[variant]
    texts = sorted(config.alphabet)
    assert len(set(texts)) == len(texts)
    assert not any(b.startswith(a) for a, b in pairwise(texts))


@on_every_variant
def test_every_id_has_a_text_of_its_own(variant: str) -> None:
    texts = vocabulary(VARIANTS[variant]).texts
    assert len(set(texts)) == len(texts)
    assert len(texts) % 32 == 0


@on_every_variant
def test_transformers_loads_the_exported_tokenizer(variant: str, exported: Exported) -> None:
    config = VARIANTS[variant]
    tokenizer = AutoTokenizer.from_pretrained(exported(variant, "float32"))
    text = "Ragged é batch."
    ids = tokenizer(text)["input_ids"]
    assert ids == encode_text(config, text)
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.eos_token_id == config.eos_id
    assert tokenizer.bos_token_id == config.bos_id


def test_an_unknown_id_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="not in the vocabulary"):
        decode_tokens(VARIANTS["plain"], [5000])


MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant"]), "content": st.text(max_size=20)}
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def exported_tokenizer(exported: Exported) -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(exported("eos", "float32"))


@quick
@given(messages=MESSAGES, ask=st.booleans())
def test_a_chat_prompt_is_known_exactly(
    exported_tokenizer: PreTrainedTokenizerFast, messages: list[dict[str, str]], ask: bool
) -> None:
    """The chat template as transformers renders it gives the ids of the plain-Python twin."""
    rendered = exported_tokenizer.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=ask, return_dict=False
    )
    assert rendered == chat_prompt_ids(VARIANTS["eos"], messages, add_generation_prompt=ask)
