"""Batch commands of a mail tool: the same command lines and exit codes, with a ledger behind them.

    mailagent -o json email resync --range 53000-53100 --replace-existing --jobs 4
    mailagent email resync --ids 53007,53009                      # 6: some have failed
    ./exclusively mail mailagent -o json email resync --range 53000-53100     # 9: stop the service, run again

| before                                | now                                                            |
|---------------------------------------|----------------------------------------------------------------|
| a cursor in a file, `--resume-from N` | the ledger: run the same line again. `--resume-from` overrides |
| a check of pm2 in each command        | conflicts=, exit 9; `--allow-concurrent` skips it              |
| counters of consecutive failures      | `--max-failures 5`, exit 8; the streak runs again              |
| `{"internal_id": 7, "passes": true}`  | `-o ndjson`: `{"key": 7, "status": "done", "data": {…}}`       |
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import click

import holdfast
from holdfast import options

app = holdfast.Holdfast()  # the store: HOLDFAST_URL, or url in holdfast.toml
MAIL = Path("mail.db")


@app.unit(retries=1, retry=["10ms"], conflicts=["pm2:mail"])
def resync(mid: int, *, replace_existing: bool = False, unit: holdfast.Unit) -> dict[str, int]:
    """Index one message; what it returns is the data of its line."""
    with closing(sqlite3.connect(MAIL, timeout=30)) as mail, mail:
        row = mail.execute("SELECT body FROM message WHERE id = ?", (mid,)).fetchone()
        if row is None:
            raise LookupError("the server has no such message")
        verb = "INSERT OR REPLACE" if replace_existing else "INSERT OR IGNORE"
        if mail.execute(f"{verb} INTO entry VALUES (?, ?)", (mid, len(row[0]))).rowcount == 0:
            unit.done("duplicate")
    return {"words": len(row[0].split())}


@click.group(cls=options.command_class(click.Group))  # takes -o before the command
def mailagent() -> None: ...


@mailagent.group(cls=options.command_class(click.Group))
def email() -> None: ...


@email.command("resync", cls=options.command_class(click.Command))
@click.option("--replace-existing", is_flag=True, help="Replace entries that exist.")
@options.click
def resync_command(*, batch: options.BatchArguments, replace_existing: bool) -> None:
    """Index messages again."""
    app.run(resync.bind(replace_existing=replace_existing), batch.keys(resync), **batch.run).exit()


if __name__ == "__main__":
    mailagent()
