"""Exit statuses, and the one way in which a command says that it cannot go on."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """What the command's exit status means; the README's table is generated from this."""

    OK = 0
    FAILED = 1
    UNUSABLE = 2
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        """One line for the documentation."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitStatus.OK: "everything that was asked for was done, and every check that ran passed",
    ExitStatus.FAILED: "at least one check failed, or a regression was found",
    ExitStatus.UNUSABLE: "nothing could be judged: bad input, no server, no such model, no space",
    ExitStatus.INTERRUPTED: "interrupted; what was found until then is in the run folder",
}


class UserError(Exception):
    """Something the user can put right; the message is one sentence that says how."""

    def __init__(self, message: str, status: ExitStatus = ExitStatus.UNUSABLE) -> None:
        super().__init__(message)
        self.status = status
