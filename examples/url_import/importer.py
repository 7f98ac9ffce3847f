"""Import pages from a list of addresses: units fetch them, a consumer saves them; either may be killed.

python importer.py check addresses.txt                 # valid, invalid and duplicate lines
python importer.py fetch addresses.txt --jobs 4        # or --where workers
python importer.py save                                # takes the pages from the inbox
python importer.py show
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

import click

import holdfast
from holdfast import options

app = holdfast.Holdfast()  # the store: HOLDFAST_URL, or url in holdfast.toml
PAGES = Path("pages.db")
PATIENCE = 10.0
INBOX = "pages"


class Input(NamedTuple):
    """The lines of a list of addresses."""

    valid: list[str]
    invalid: list[tuple[int, str, str]]
    duplicate: list[tuple[int, str]]


def read(path: Path) -> Input:
    """Sort the lines of a file into valid addresses, invalid ones with the reason, and duplicates."""
    lines = Input([], [], [])
    seen: set[str] = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            lines.invalid.append((number, text, "not an http address"))
            continue
        address = urlunsplit((parts.scheme, parts.netloc.lower(), parts.path or "/", parts.query, ""))
        if address in seen:
            lines.duplicate.append((number, text))
        else:
            seen.add(address)
            lines.valid.append(address)
    return lines


@app.unit(retries=1, retry=["100ms"], timeout="30s", max_failures=20)
def fetch(address: str, unit: holdfast.Unit) -> None:
    """Fetch one page and hand it over. A page with the text of an earlier one is a duplicate."""
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:  # noqa: S310 - read() accepts only http
        text = answer.read().decode(errors="replace")
    if "id='consent'" in text:
        unit.warn("a consent wall, not the page")
        unit.done("consent")
        return
    digest = hashlib.sha256(text.encode()).hexdigest()
    with opened() as pages:
        pages.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (digest, address))
        (first,) = pages.execute("SELECT address FROM seen WHERE digest = ?", (digest,)).fetchone()
    if first != address:
        unit.done("duplicate", {"of": first})
        return
    title = re.search("<title>(.*?)</title>", text)
    unit.done("saved")
    unit.hand_over({"address": address, "title": title[1] if title else "", "text": text}, inbox=INBOX)


@contextmanager
def opened() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(PAGES, timeout=30)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS seen (digest TEXT PRIMARY KEY, address TEXT)")
        connection.execute("CREATE TABLE IF NOT EXISTS page (address TEXT PRIMARY KEY, title TEXT, text TEXT)")
        yield connection


@click.group()
def program() -> None:
    """Import pages from a list of addresses."""


@program.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def check(file: Path) -> None:
    """Print the number of valid lines, and each invalid or duplicate one."""
    lines = read(file)
    click.echo(f"{len(lines.valid)} valid, {len(lines.invalid)} invalid, {len(lines.duplicate)} duplicate")
    for number, text, why in lines.invalid:
        click.echo(f"line {number}: {text}: {why}")
    for number, text in lines.duplicate:
        click.echo(f"line {number}: {text}: duplicate line")


@program.command("fetch", cls=options.command_class(click.Command))
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@options.click
def fetch_command(*, batch: options.BatchArguments, file: Path) -> None:
    """Fetch the pages of a list, resumable."""
    lines = read(file)
    if lines.invalid or lines.duplicate:
        click.echo(f"{len(lines.invalid)} invalid and {len(lines.duplicate)} duplicate lines are skipped", err=True)
    app.run(fetch, lines.valid, **{**batch.run, "source": f"file {file.name}"}).exit()


@program.command()
@click.option("--wait", default="1s", show_default=True, help="Time to wait for another page.")
def save(wait: str) -> None:
    """Take pages from the inbox and save them, until it stays empty."""
    saved = 0
    inbox = app.inbox(INBOX)
    while results := inbox.take(10, wait=wait):
        for result in results:
            with opened() as pages:
                pages.execute("INSERT OR REPLACE INTO page VALUES (:address, :title, :text)", result.value)
            result.accept()  # after a kill before this line, another consumer gets the page in a minute
            saved += 1
    click.echo(f"{saved} pages are saved")


@program.command()
def show() -> None:
    """List the saved pages."""
    with opened() as pages:
        for address, title in pages.execute("SELECT address, title FROM page ORDER BY address"):
            click.echo(f"{address}  {title}")


if __name__ == "__main__":
    program()
