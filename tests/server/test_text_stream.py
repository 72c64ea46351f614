"""Text is cut at the first stop string, whatever the tokens, and never shown and taken back."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference_engine.server.text_codec import TextCodec
from reference_engine.server.text_stream import TextStream
from tests.server.conftest import byte_tokenizer
from tests.server.fake_engine import VOCAB_SIZE

CODEC = TextCodec(byte_tokenizer(), VOCAB_SIZE)


class _Words:
    """A decoder whose "tokens" are the words of a list: any text, cut anywhere."""

    def __init__(self, words: list[str]) -> None:
        self._words = words

    def push(self, token_id: int) -> str:
        return self._words[token_id]

    def flush(self) -> str:
        return ""


def _stream(
    words: list[str], stops: list[str], min_tokens: int = 0
) -> tuple[list[str], str | None]:
    stream = TextStream(_Words(words), stops, min_tokens=min_tokens)
    shown = []
    for token in range(len(words)):
        delta = stream.push(token)
        shown.append(delta.text)
        if delta.stop is not None:
            return shown, delta.stop
    shown.append(stream.finish().text)
    return shown, None


def _expected(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Character by character: the first stop string to be complete, the longest if several are."""
    for end in range(1, len(text) + 1):
        ended = [s for s in stops if text[:end].endswith(s)]
        if ended:
            stop = max(ended, key=len)
            return text[: end - len(stop)], stop
    return text, None


SMALL_TEXT = st.text("ab", max_size=24)
CUTS = st.lists(st.integers(0, 24), max_size=10)


@given(SMALL_TEXT, CUTS, st.lists(st.text("ab", min_size=1, max_size=4), max_size=4))
@settings(max_examples=300)
def test_the_cut_does_not_depend_on_how_tokens_cut_the_text(
    text: str, cuts: list[int], stops: list[str]
) -> None:
    edges = [0, *sorted(c for c in cuts if c <= len(text)), len(text)]
    words = [text[a:b] for a, b in itertools.pairwise(edges)]
    shown, stop = _stream(words, stops)
    assert ("".join(shown), stop) == _expected(text, stops)


@given(SMALL_TEXT, st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=4))
def test_every_prefix_that_was_shown_is_a_prefix_of_the_final_text(
    text: str, stops: list[str]
) -> None:
    final, _ = _expected(text, stops)
    shown, _ = _stream(list(text), stops)
    so_far = ""
    for delta in shown:
        so_far += delta
        assert final.startswith(so_far)


def test_nothing_is_held_back_that_cannot_begin_a_stop_string() -> None:
    stream = TextStream(_Words(["abc", "x", "STO", "P"]), ["STOP"])
    assert [stream.push(i).text for i in range(3)] == ["abc", "x", ""]
    assert stream.held_chars == 3
    assert stream.push(3).stop == "STOP"


def test_a_stop_string_before_min_tokens_is_ordinary_text() -> None:
    assert _stream(["ab", "ab", "ab"], ["ab"], min_tokens=2) == (["ab", "ab", ""], "ab")


def test_a_stop_string_may_begin_before_min_tokens_and_end_after() -> None:
    assert _stream(["xa", "by"], ["ab"], min_tokens=1) == (["x", ""], "ab")


def test_the_stop_string_is_kept_when_asked() -> None:
    stream = TextStream(_Words(["xab"]), ["ab"], include_stop=True)
    assert stream.push(0).text == "xab"


@given(st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=40))
def test_pushing_ids_one_by_one_decodes_like_the_tokenizer(ids: list[int]) -> None:
    decoder = CODEC.decoder()
    pushed = [decoder.push(i) for i in ids]
    text = "".join([*pushed, decoder.flush()])
    assert text == byte_tokenizer().decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("char", ["é", "€", "😀"])
def test_a_character_of_several_tokens_comes_out_whole(char: str) -> None:
    ids = CODEC.encode(char, add_special_tokens=False)
    decoder = CODEC.decoder()
    assert [decoder.push(i) for i in ids] == [""] * (len(ids) - 1) + [char]


def test_an_unfinished_character_at_the_end_is_one_replacement_character() -> None:
    stream = TextStream(CODEC.decoder())
    for token_id in CODEC.encode("a€", add_special_tokens=False)[:-1]:
        stream.push(token_id)
    assert stream.finish().text == "\N{REPLACEMENT CHARACTER}"


def test_tokens_that_are_no_characters_keep_apart_in_logprobs() -> None:
    first, second, third = CODEC.encode("€", add_special_tokens=False)
    assert CODEC.token_text(first) == "bytes:\\xe2"
    assert len({CODEC.token_text(i) for i in (first, second, third)}) == 3
