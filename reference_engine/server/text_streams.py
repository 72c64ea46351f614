"""Where the text streams of all choices come from."""

from __future__ import annotations

from collections.abc import Sequence

from reference_engine.server.text_codec import Decoder, TextCodec
from reference_engine.server.text_stream import TextStream


class TextStreams:
    """Opens a `TextStream` for each choice of each request."""

    def __init__(self, codec: TextCodec) -> None:
        self._codec = codec

    def decoder(self, skip_special_tokens: bool) -> Decoder:
        """A decoder with the state of one choice."""
        return self._codec.decoder(skip_special_tokens=skip_special_tokens)

    def open(
        self,
        stops: Sequence[str] = (),
        *,
        min_tokens: int = 0,
        include_stop: bool = False,
        skip_special_tokens: bool = True,
    ) -> TextStream:
        """The text of one choice, empty so far."""
        decoder = self.decoder(skip_special_tokens)
        return TextStream(decoder, stops, min_tokens=min_tokens, include_stop=include_stop)
