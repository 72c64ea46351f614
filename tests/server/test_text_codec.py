"""Decoding token by token says what decoding all at once says, for both kinds of tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from reference_engine.server.text_codec import TextCodec
from tests.server.conftest import byte_tokenizer

PIECES = ["▁", "▁a", "b", "▁the", "é", "▁é", "c", "▁c"]


def sentencepiece_like() -> Tokenizer:
    """Llama 2's kind: pieces with ▁ for a space, bytes for the rest, the first space dropped."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for piece in [*(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]:
        vocab[piece] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens([AddedToken(s, special=True) for s in ("<unk>", "<s>", "</s>")])
    return tokenizer


SENTENCEPIECE = sentencepiece_like()
CODEC = TextCodec(SENTENCEPIECE, SENTENCEPIECE.get_vocab_size())


@given(st.text(alphabet="ab cé€😀\n", max_size=40))
def test_a_sentencepiece_tokenizer_streams_what_it_decodes(text: str) -> None:
    ids = CODEC.encode(text, add_special_tokens=False)
    decoder = CODEC.decoder()
    pushed = [decoder.push(i) for i in ids]
    assert "".join([*pushed, decoder.flush()]) == SENTENCEPIECE.decode(list(ids))
    assert all("\N{REPLACEMENT CHARACTER}" not in delta for delta in pushed)


@given(st.lists(st.sampled_from(range(3 + 256, 3 + 256 + len(PIECES))), max_size=30))
def test_pieces_keep_their_spaces(ids: list[int]) -> None:
    assert CODEC.decode(ids) == SENTENCEPIECE.decode(ids)


def test_bytes_that_never_become_a_character_are_held_back_for_a_while_only() -> None:
    decoder = CODEC.decoder()
    lone = SENTENCEPIECE.token_to_id("<0xFF>")
    shown = "".join(decoder.push(lone) for _ in range(40))
    assert shown != ""


def test_a_special_token_is_shown_only_when_asked() -> None:
    codec = TextCodec(byte_tokenizer(), 300)
    ids = [1, *codec.encode("a", add_special_tokens=False), 2]
    assert codec.decode(ids) == "a"
    assert codec.decode(ids, skip_special_tokens=False) == "<s>a</s>"


def test_ids_without_text_are_no_error() -> None:
    codec = TextCodec(byte_tokenizer(), 300)
    assert codec.decode([299]) == ""
    assert codec.token_text(299) == ""


def test_a_folder_with_a_separate_template(tmp_path: Path) -> None:
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    config = {"chat_template": "old", "bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert TextCodec.load(tmp_path, 300).chat_template == "old"
    (tmp_path / "chat_template.jinja").write_text("new")
    codec = TextCodec.load(tmp_path, 300)
    assert codec.chat_template == "new"
    assert codec.special_texts == {"bos_token": "<s>", "eos_token": "</s>"}


def test_a_folder_without_a_tokenizer_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no tokenizer\.json"):
        TextCodec.load(tmp_path, 300)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_file_is_named_in_one_sentence(name: str, tmp_path: Path) -> None:
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / name).write_text("x")
    with pytest.raises(ValueError, match=f"{name} is .*copy it again"):
        TextCodec.load(tmp_path, 300)
