"""``files append`` and ``files write``: safe writes to shared files, for scripts."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from msgspec import Struct

from holdfast import files as shared_files
from holdfast.cli.command import CommandGroup, command
from holdfast.cli.session import CliSession
from holdfast.errors import InvalidInput

READ_BYTES = 1 << 20


class FileAnswer(Struct, frozen=True):
    """A file, and the number of bytes that were written to it."""

    path: str
    bytes: int


@click.group("files", cls=CommandGroup)
def files() -> None:
    """Write files that several programs share, without mixed lines or incomplete files."""


@command("append", answers=FileAnswer, group=files)
@click.argument("path", metavar="FILE")
@click.argument("text", metavar="[LINE]", required=False)
def append(session: CliSession, *, path: str, text: str | None) -> None:
    """Append a line, or all of stdin, to a file under a lock.

    Lines of several programs never mix, and are on disk when the command returns.

    Examples:
      holdfast files append results.csv "$symbol,$year,$profit"
      ./report | holdfast files append reports.txt
    """
    data = sys.stdin.buffer.read() if text is None else text.encode(errors="surrogateescape")
    if data or text is not None:
        _checked(path)
        shared_files.append(path, data)
    _answer(session, path, len(data))


@command("write", answers=FileAnswer, group=files)
@click.argument("path", metavar="FILE")
@click.option("--allow-empty", is_flag=True, help="Accept an empty stdin. It is refused by default.")
def write(session: CliSession, *, path: str, allow_empty: bool) -> None:
    """Replace the content of a file with stdin, in one step.

    It does so when stdin ends. Readers see the old content or the new one, also after a crash. An empty stdin leaves
    the file as it is (exit 2): the command before the pipe has probably failed.

    Examples:
      ./simulate --seed 7 | holdfast files write out/seed=7.csv
    """
    _checked(path)
    first = sys.stdin.buffer.read(READ_BYTES)
    if not first and not allow_empty:
        raise InvalidInput(f"stdin is empty; {path} stays as it is", hint="Add --allow-empty to write an empty file.")
    size = 0
    with shared_files.writing(path) as file:
        while first:
            size += file.write(first)
            first = sys.stdin.buffer.read(READ_BYTES)
    _answer(session, path, size)


def _checked(path: str) -> None:
    if not Path(path).absolute().parent.is_dir():
        raise InvalidInput(f"there is no directory for {path}", hint="Make it first, with mkdir -p.")


def _answer(session: CliSession, path: str, size: int) -> None:
    session.output.value(FileAnswer(str(Path(path).absolute()), size), lambda: ())
