"""The rows of a measured run, written while it goes on: what ended is kept, however the run ends.

A disk that refuses a row does not end the measurement. Its numbers are worth showing, so the
refusal is kept and raised after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.load.text_tokens import count_text_tokens, load_tokenizer
from harness.metrics.request_row import to_row
from harness.results.run_folder import RunFolder, RunFolderError
from harness.transcript import RequestTranscript


class RequestRows:
    """One file of request rows in a run folder; `add` and `add_row` never raise for the disk.

    With a tokenizer (a tokenizer.json or its folder) each request's text is counted before it is
    written. Raises UserError for a bad one, RunFolderError if the file cannot be begun.
    """

    def __init__(self, folder: RunFolder, name: str, tokenizer: Path | None = None) -> None:
        self._folder = folder
        self._name = name
        self._tokenizer = None if tokenizer is None else load_tokenizer(tokenizer)
        self._refusal: RunFolderError | None = None
        folder.begin_rows(name)

    def add(self, request: RequestTranscript) -> None:
        """A request that ended and is parsed."""
        if self._tokenizer is not None:
            count_text_tokens([request], self._tokenizer)
        self.add_row(to_row(request))

    def add_row(self, row: Mapping[str, Any]) -> None:
        """A row that a worker made."""
        if self._refusal is not None:
            return
        try:
            self._folder.append(self._name, row)
        except RunFolderError as error:
            self._refusal = error

    def check(self) -> None:
        """Raise RunFolderError if the disk refused a row; what follows it was not written."""
        if self._refusal is not None:
            raise self._refusal
