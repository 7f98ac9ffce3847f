"""Crawl a library: each step enqueues the next, and each part has one live job.

python crawler.py login              # get a session for the jobs
python crawler.py crawl              # enqueue the first step
python crawler.py refetch 1 2        # fetch chapter 2 of series 1 again
python crawler.py show
"""

from __future__ import annotations

import json
import os
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click

import holdfast
from holdfast import Context, Fail, Release, files

app = holdfast.Holdfast()  # the store: HOLDFAST_URL, or url in holdfast.toml
SITE = os.environ.get("CRAWL_SITE", "http://127.0.0.1:8026")
SESSION, PAGES = Path("session"), Path("pages.db")
QUEUE = "crawl"
PATIENCE = 10.0


@app.job(queue=QUEUE, retry=["100ms"])
def discover(job: Context, *, force: bool = False) -> int:
    """Find the series."""
    numbers = fetch("/index")
    for series in numbers:
        job.enqueue("read_series", {"series": series, "force": force})
    return len(numbers)


@app.job(queue=QUEUE, retry=["100ms"], unique=["series"])
def read_series(series: int, job: Context, *, force: bool = False) -> int:
    """Find the chapters of a series."""
    chapters = fetch(f"/series/{series}")
    for chapter in chapters:
        job.enqueue("read_chapter", {"series": series, "chapter": chapter, "force": force})
    return len(chapters)


@app.job(queue=QUEUE, retry=["100ms"], unique=["series", "chapter"])
def read_chapter(series: int, chapter: int, job: Context, *, force: bool = False) -> int:
    """Find the parts of a chapter. A chapter has one live job."""
    parts = fetch(f"/chapter/{series}/{chapter}")
    for part in parts:
        job.enqueue("read_content", {"series": series, "chapter": chapter, "part": part, "force": force})
    return len(parts)


@app.job(queue=QUEUE, max_attempts=3, retry=["100ms"], unique=["series", "chapter", "part"])
def read_content(series: int, chapter: int, part: int, *, force: bool = False) -> str:
    """Fetch one part, unless it is stored. A second run replaces its row."""
    key = (series, chapter, part)
    with opened() as pages:
        if not force and pages.execute("SELECT 1 FROM page WHERE (series, chapter, part) = (?, ?, ?)", key).fetchone():
            return "known"
    text = fetch(f"/content/{series}/{chapter}/{part}")
    with opened() as pages:
        pages.execute("INSERT OR REPLACE INTO page VALUES (?, ?, ?, ?)", (*key, text))
    return "fetched"


def fetch(path: str) -> Any:
    """Fetch a path. If the session has expired, release the job and pause the queue until a person signs in."""
    session = SESSION.read_text() if SESSION.exists() else ""
    request = urllib.request.Request(f"{SITE}{path}", headers={"X-Session": session})  # noqa: S310 - our own site
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 401:
            app.queues.pause(QUEUE, note="the session has expired: python crawler.py login")
            raise Release("the session has expired") from None
        if error.code == 404:
            raise Fail(f"not found: {path}") from None
        raise


@contextmanager
def opened() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(PAGES, timeout=30)) as connection, connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS page (series, chapter, part, text, PRIMARY KEY (series, chapter, part))"
        )
        yield connection


@click.group()
def program() -> None:
    """Crawl a library, and show the result."""


@program.command()
def login() -> None:
    """Get a session, and resume the queue."""
    with urllib.request.urlopen(f"{SITE}/login", timeout=PATIENCE) as answer:  # noqa: S310
        files.write(SESSION, json.load(answer))
    app.queues.resume(QUEUE)
    click.echo("logged in")


@program.command()
@click.option("--force", is_flag=True, help="Fetch stored parts again, too.")
def crawl(*, force: bool) -> None:
    """Enqueue the first step; workers do the rest."""
    click.echo(f"job {discover.enqueue(force=force).id}")


@program.command()
@click.argument("series", type=int)
@click.argument("chapter", type=int)
def refetch(series: int, chapter: int) -> None:
    """Fetch a chapter again, or print the job that already does."""
    ref = read_chapter.enqueue(series=series, chapter=chapter, force=True)
    click.echo(f"job {ref.id}" + ("" if ref.created else " already does this"))


@program.command()
def show() -> None:
    """Print the number of parts of each series."""
    with opened() as pages:
        for series, count in pages.execute("SELECT series, count(*) FROM page GROUP BY series ORDER BY series"):
            click.echo(f"series {series}: {count} parts")


if __name__ == "__main__":
    program()
