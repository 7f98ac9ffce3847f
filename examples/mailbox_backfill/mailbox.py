"""Index the messages of a mailbox: a backfill over a range of ids that survives kills and restarts.

    python mailbox.py make --messages 500          # create a mailbox with test messages
    python mailbox.py resync --range 1-500 --jobs 4
    python mailbox.py count                        # print how many messages are indexed

Stop it with Ctrl-C or kill it with -9, then run the same line again: it continues.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

import holdfast
from holdfast import options

app = holdfast.Holdfast()  # the store: HOLDFAST_URL, or url in holdfast.toml
MAILBOX, INDEX = Path("mailbox.db"), Path("index.db")


@app.unit(retries=1, retry=["10ms"], operational=["nap"])
def resync(mid: int, *, replace: bool = False, nap: float = 0.0, unit: holdfast.Unit) -> None:
    """Index one message."""
    with opened(MAILBOX) as mailbox:
        row = mailbox.execute("SELECT subject, body FROM message WHERE id = ?", (mid,)).fetchone()
    if row is None:
        raise holdfast.Skip("no such message")
    subject, body = row
    if body is None:
        raise ValueError("the body cannot be read")
    if not subject:
        unit.warn("no subject")
    time.sleep(nap)  # a slow server
    with opened(INDEX) as index:
        index.execute("INSERT INTO effect VALUES (?)", (mid,))  # counts each effect
        done = index.execute("INSERT OR IGNORE INTO entry VALUES (?, ?)", (mid, len(body)))
        if done.rowcount == 0 and not replace:
            unit.done("duplicate")
        elif done.rowcount == 0:
            index.execute("UPDATE entry SET words = ? WHERE mid = ?", (len(body), mid))
            unit.done("replaced")
        else:
            unit.done("new")


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, timeout=30)) as connection, connection:
        yield connection


@click.group()
def program() -> None:
    """A mailbox and its index."""


@program.command()
@click.option("--messages", default=500, show_default=True, help="Number of messages.")
@click.option("--broken", default="", help="Messages whose body cannot be read: 7,8,9.")
def make(messages: int, broken: str) -> None:
    """Create a mailbox of test messages, and an empty index."""
    unreadable = {int(mid) for mid in broken.split(",") if mid}
    with opened(MAILBOX) as mailbox:
        mailbox.execute("CREATE TABLE IF NOT EXISTS message (id INTEGER PRIMARY KEY, subject TEXT, body TEXT)")
        rows = (_message(n, readable=n not in unreadable) for n in range(1, messages + 1))
        mailbox.executemany("INSERT OR REPLACE INTO message VALUES (?, ?, ?)", rows)
    with opened(INDEX) as index:
        index.execute("CREATE TABLE IF NOT EXISTS entry (mid INTEGER PRIMARY KEY, words INTEGER)")
        index.execute("CREATE TABLE IF NOT EXISTS effect (mid INTEGER)")


def _message(n: int, *, readable: bool) -> tuple[int, str, str | None]:
    return n, f"message {n}" if n % 50 else "", "word " * n if readable else None


@program.command("resync", cls=options.command_class(click.Command))
@click.option("--replace", is_flag=True, help="Replace existing entries.")
@click.option("--nap", default=0.0, help="Seconds that each message takes.")
@options.click
def command(*, batch: options.BatchArguments, replace: bool, nap: float) -> None:
    """Index messages, resumable."""
    app.run(resync.bind(replace=replace, nap=nap), batch.keys(resync), **batch.run).exit()


@program.command()
def count() -> None:
    """Print how many messages are indexed, and how many of them more than once."""
    with opened(INDEX) as index:
        (entries,) = index.execute("SELECT count(*) FROM entry").fetchone()
        (effects,) = index.execute("SELECT count(*) FROM effect").fetchone()
    click.echo(f"{entries} messages are indexed, {effects - entries} of them more than once")


if __name__ == "__main__":
    program()
