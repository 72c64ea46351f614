"""The event stream parser: the cut of the bytes must not matter."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.client.sse import SseEvent, SseParser

line_ends = st.sampled_from([b"\n", b"\r", b"\r\n"])
texts = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[SseEvent]]:
    """Bytes of a stream and the events that they mean, by the standard."""
    out = b"\xef\xbb\xbf" if draw(st.booleans()) else b""
    meant = []
    for _ in range(draw(st.integers(0, 5))):
        end = draw(line_ends)
        name = draw(st.sampled_from(["", "error", "delta"]))
        lines = draw(st.lists(texts, max_size=3))
        parts = [b": a comment", b":", b"id: 7", b"retry:10", b"unknown: x", b"nofield"]
        block = [draw(st.sampled_from(parts)) for _ in range(draw(st.integers(0, 2)))]
        if name:
            block.append(b"event:" + b" " * draw(st.integers(0, 1)) + name.encode())
        for line in lines:
            # A space after the colon is dropped, so a text that begins with one needs it.
            space = b" " if line.startswith(" ") or draw(st.booleans()) else b""
            block.append(b"data:" + space + line.encode())
        out += b"".join(line + end for line in block) + end
        if lines:
            meant.append(SseEvent(name or "message", "\n".join(lines).encode()))
    return out, meant


def parse(pieces: list[bytes]) -> list[SseEvent]:
    parser = SseParser()
    return [event for piece in pieces for event in parser.feed(piece)]


@settings(max_examples=40)
@given(streams(), st.data())
def test_events_do_not_depend_on_the_cut(stream: tuple[bytes, list[SseEvent]], data: st.DataObject):
    raw, meant = stream
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=8)) | {0, len(raw)})
    assert parse([raw[a:b] for a, b in pairwise(cuts)]) == meant
    assert parse([bytes([b]) for b in raw]) == meant
    assert parse([raw]) == meant


def test_an_event_is_given_out_with_its_last_byte():
    parser = SseParser()
    assert parser.feed(b"data: x\r") == []
    assert parser.feed(b"\r") == [SseEvent("message", b"x")]
    assert parser.feed(b"\ndata: y\n\n") == [SseEvent("message", b"y")]


def test_an_unfinished_event_is_not_given_out():
    parser = SseParser()
    assert parser.feed(b"data: x\n") == []
    assert parser.unfinished


def test_a_character_split_between_reads_survives():
    raw = ("data: " + json.dumps({"text": "é🙂"}, ensure_ascii=False) + "\n\n").encode()
    for cut in range(len(raw)):
        [event] = parse([raw[:cut], raw[cut:]])
        assert json.loads(event.data) == {"text": "é🙂"}


@pytest.mark.parametrize("line", [b"data", b"data:"])
def test_an_empty_data_line_is_an_event_with_an_empty_text(line: bytes):
    assert parse([line + b"\n\n"]) == [SseEvent("message", b"")]


def test_a_long_line_in_small_pieces_costs_linear_time():
    parser = SseParser()
    for _ in range(20_000):
        parser.feed(b"data: x"[:7] if parser.unfinished else b"data: ")
    [event] = parser.feed(b"\n\n")
    assert len(event.data) > 100_000
