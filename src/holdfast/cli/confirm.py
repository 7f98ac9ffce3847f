"""Ask before something is lost."""

from __future__ import annotations

import sys

import click

from holdfast.cli.session import Session
from holdfast.errors import InvalidInput


def confirm(session: Session, deed: str, *, yes: bool, hint: str = "Add --yes.") -> None:
    """Ask a person whether to go on; a program has to say --yes beforehand.

    Raises:
        InvalidInput: There is nobody to ask.
    """
    if yes:
        return
    if session.output.format != "text" or not sys.stdin.isatty():
        raise InvalidInput(f"this would {deed}", hint=hint)
    click.confirm(f"{deed}?", abort=True, err=True)
