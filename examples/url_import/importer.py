"""Import pages from a list of addresses: units fetch them, a consumer saves them, and either may be killed.

python importer.py check addresses.txt                 # valid, invalid and duplicate lines
python importer.py fetch addresses.txt --jobs 4        # or --where workers
python importer.py save                                # takes the pages out of the inbox
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

app = holdfast.Holdfast()  # the store: HOLDFAST_URL, or what holdfast.toml says
PAGES = Path("pages.db")
PATIENCE = 10.0
INBOX = "pages"


class Input(NamedTuple):
    """The lines of a list of addresses."""

    valid: list[str]
    invalid: list[tuple[int, str, str]]
    duplicate: list[tuple[int, str]]


def read(path: Path) -> Input:
    """Sort the lines of a file: what can be fetched, what cannot and why, and what was there before."""
    found = Input([], [], [])
    seen: set[str] = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            found.invalid.append((number, text, "it is no http address"))
            continue
        address = urlunsplit((parts.scheme, parts.netloc.lower(), parts.path or "/", parts.query, ""))
        if address in seen:
            found.duplicate.append((number, text))
        else:
            seen.add(address)
            found.valid.append(address)
    return found


@app.unit(retries=1, retry=["100ms"], timeout="30s", max_failures=20)
def fetch(address: str, unit: holdfast.Unit) -> None:
    """Fetch one page and hand it over; a page that says what another said is a duplicate."""
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:  # noqa: S310 - read() lets only http pass
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
    """Say what of a list can be fetched."""
    found = read(file)
    click.echo(f"{len(found.valid)} valid, {len(found.invalid)} invalid, {len(found.duplicate)} duplicate")
    for number, text, why in found.invalid:
        click.echo(f"line {number}: {text}: {why}")
    for number, text in found.duplicate:
        click.echo(f"line {number}: {text}: it was there before")


@program.command("fetch")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@options.click
def fetch_command(*, batch: options.BatchArguments, file: Path) -> None:
    """Fetch the pages of a list, resumable."""
    found = read(file)
    if found.invalid or found.duplicate:
        click.echo(f"{len(found.invalid)} invalid and {len(found.duplicate)} duplicate lines are left out", err=True)
    app.run(fetch, found.valid, **{**batch.run, "source": f"file {file.name}"}).exit()


@program.command()
@click.option("--wait", default="1s", show_default=True, help="How long to wait for another page.")
def save(wait: str) -> None:
    """Take pages out of the inbox and save them, until none comes any more."""
    saved = 0
    inbox = app.inbox(INBOX)
    while results := inbox.take(10, wait=wait):
        for result in results:
            with opened() as pages:
                pages.execute("INSERT OR REPLACE INTO page VALUES (:address, :title, :text)", result.value)
            result.accept()  # killed before this, it comes again in a minute, and is replaced
            saved += 1
    click.echo(f"{saved} pages are saved")


@program.command()
def show() -> None:
    """Say which pages there are."""
    with opened() as pages:
        for address, title in pages.execute("SELECT address, title FROM page ORDER BY address"):
            click.echo(f"{address}  {title}")


if __name__ == "__main__":
    program()
