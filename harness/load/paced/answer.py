"""The bytes of a paced answer: OpenAI completion events, each with the time it was sent.

The time is the ``paced_sent_s`` field: seconds on this machine's monotonic clock, which every
process of the machine shares, read just before the bytes are handed to the kernel. The field
``paced_arrived_s`` is when the request arrived, by the kernel's stamp where there is one.
"""

from __future__ import annotations

import json
from typing import Final

_TIME_WIDTH: Final = 18
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
)


class AnswerBytes:
    """Makes the writes of one answer. A token's text is `` tok``."""

    def __init__(
        self,
        response_id: str,
        prompt_tokens: int,
        tokens: int,
        tokens_per_chunk: int,
        usage: bool,
        arrived_s: float = 0.0,
        chat: bool = False,
    ) -> None:
        self._chat = chat
        self._arrived_s = arrived_s
        self._id = response_id
        self._prompt_tokens = prompt_tokens
        self._tokens = tokens
        self._per_chunk = tokens_per_chunk
        self._usage = usage
        full = self._event(" tok" * tokens_per_chunk, list(range(tokens_per_chunk)), None)
        self._full = self._framed(full)

    def chunk(self, number: int, sent_s: float) -> bytes:
        """The framed event of chunk ``number`` (from 0), stamped with ``sent_s``."""
        left = self._tokens - number * self._per_chunk
        if left > self._per_chunk:
            before, after = self._full
        else:
            before, after = self._framed(self._event(" tok" * left, list(range(left)), "length"))
        stamp = b"%18.6f" % sent_s
        return b"".join((_HEAD if number == 0 else b"", before, stamp, after))

    def end(self) -> bytes:
        """Usage if asked for, the terminator, and the end of the HTTP answer."""
        out = b""
        if self._usage:
            usage = {
                "prompt_tokens": self._prompt_tokens,
                "completion_tokens": self._tokens,
                "total_tokens": self._prompt_tokens + self._tokens,
            }
            out += _chunked(_data({"id": self._id, "choices": [], "usage": usage}))
        return out + _chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n"

    def error(self) -> bytes:
        """An error event, as servers send it when a request breaks under way."""
        return _chunked(_data({"error": {"message": "paced error", "code": 500}})) + b"0\r\n\r\n"

    def whole(self) -> bytes:
        """The answer without streaming."""
        choice: dict[str, object] = {"index": 0, "finish_reason": "length"}
        text = " tok" * self._tokens
        if self._chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        document = {
            "id": self._id,
            "object": "chat.completion" if self._chat else "text_completion",
            "model": "paced",
            "choices": [choice],
            "usage": {
                "prompt_tokens": self._prompt_tokens,
                "completion_tokens": self._tokens,
                "total_tokens": self._prompt_tokens + self._tokens,
            },
        }
        return json_answer(document)

    def _event(self, text: str, ids: list[int], reason: str | None) -> dict[str, object]:
        choice: dict[str, object] = {
            "index": 0,
            "logprobs": None,
            "finish_reason": reason,
            "token_ids": ids,
        }
        if self._chat:
            choice["delta"] = {"content": text}
        else:
            choice["text"] = text
        return {
            "id": self._id,
            "object": "chat.completion.chunk" if self._chat else "text_completion",
            "created": 1,
            "model": "paced",
            "choices": [choice],
            "paced_arrived_s": self._arrived_s,
        }

    def _framed(self, document: dict[str, object]) -> tuple[bytes, bytes]:
        """The framed bytes before and after the stamp, whose width is fixed."""
        head = b"data: " + json.dumps(document)[:-1].encode() + b', "paced_sent_s": '
        tail = b"}\n\n"
        length = len(head) + _TIME_WIDTH + len(tail)
        return b"%x\r\n" % length + head, tail + b"\r\n"


def json_answer(document: object, status: bytes = b"200 OK") -> bytes:
    """A whole JSON answer."""
    return answer_of(json.dumps(document).encode(), b"application/json", status)


def answer_of(body: bytes, media_type: bytes, status: bytes = b"200 OK") -> bytes:
    """A whole answer."""
    return (
        b"HTTP/1.1 " + status + b"\r\nContent-Type: " + media_type + b"\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body) + body
    )


def _data(document: object) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n" % len(data) + data + b"\r\n"
