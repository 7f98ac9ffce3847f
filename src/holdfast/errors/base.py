"""The base class of all errors."""

from __future__ import annotations

from typing import Any, ClassVar


class HoldfastError(Exception):
    """Base of all errors of Holdfast.

    Arguments after the message become ``context``: the facts that a program may want.
    """

    code: ClassVar[str] = "E_HOLDFAST"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    hint: str = ""

    def __init__(self, message: str, /, *, hint: str | None = None, **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.context = context
        if hint is not None:
            self.hint = hint
        if self.hint:
            self.add_note(self.hint)
