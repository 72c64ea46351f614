"""What one common event costs the client to read, beside JSON decoding alone."""

from __future__ import annotations

from typing import Any

import orjson

from harness.client.answer_reader import AnswerReader
from harness.transcript import Ending, RequestTranscript

EVENT = orjson.dumps(
    {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "text": " tok",
                "logprobs": None,
                "finish_reason": None,
                "token_ids": [7],
            }
        ],
    }
)
EVENTS = 1000


def test_reading_a_thousand_events(benchmark: Any) -> None:
    piece = b"data: " + EVENT + b"\n\n"

    def read() -> int:
        transcript = RequestTranscript("a", Ending.COMPLETE, 0.0)
        reader = AnswerReader(transcript, stream=True, origin_s=0.0, keep_raw=False)
        reader.feed(0.0, piece)
        reader.backlog.extend((float(i), piece) for i in range(EVENTS - 1))
        reader.catch_up()
        return len(transcript.first.chunks)

    assert benchmark(read) == EVENTS


def test_decoding_a_thousand_events_as_json_alone(benchmark: Any) -> None:
    def read() -> int:
        return sum(1 for _ in range(EVENTS) if orjson.loads(EVENT))

    assert benchmark(read) == EVENTS
