"""``batch export``: a ledger as a file."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import click
import msgspec
from msgspec import Struct

from holdfast.cli.command import command
from holdfast.cli.session import Session
from holdfast.client.batches.report import UnitLine, unit_line
from holdfast.domain.batches.batch import BatchId
from holdfast.domain.batches.unit import UnitState
from holdfast.errors import InvalidInput
from holdfast.store import Store


class Exported(Struct, frozen=True):
    """A file that holds the units of a batch."""

    batch: int
    file: str
    units: int


@command("export", answers=Exported)
@click.argument("batch_id", type=click.IntRange(1))
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-s", "--state", type=click.Choice([state.value for state in UnitState]), help="Only these.")
def export(session: Session, *, batch_id: int, file: Path, state: str | None) -> None:
    """Write the units of a batch to a file: .csv, or .ndjson with one JSON object per line."""
    write = {".csv": _write_csv, ".ndjson": _write_ndjson, ".jsonl": _write_ndjson}.get(file.suffix)
    if write is None:
        raise InvalidInput(f"{file.name!r} says no format", hint="End its name with .csv or .ndjson.")
    session.store.batches.get(BatchId(batch_id))
    half = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with open(half, "x", encoding="utf-8", newline="", opener=_private) as out:
            count = write(out, all_units(session.store, BatchId(batch_id), state))
            out.flush()
            os.fsync(out.fileno())
        half.replace(file)
    except OSError as error:
        raise InvalidInput(f"{file} cannot be written: {error.strerror or error}") from None
    finally:
        half.unlink(missing_ok=True)
    told = Exported(batch_id, str(file), count)
    session.output.value(told, lambda: [f"{count:,} units of batch {batch_id} are in {file}"])


def all_units(store: Store, batch_id: BatchId, state: str | None) -> Iterator[UnitLine]:
    """The ledger of a batch, by key, page by page."""
    after = ""
    requested = None if state is None else UnitState(state)
    while page := store.batches.units(batch_id, state=requested, after=after):
        yield from map(unit_line, page)
        after = page[-1].key


def _write_csv(out: IO[str], units: Iterable[UnitLine]) -> int:
    names = UnitLine.__struct_fields__
    rows, count = csv.writer(out), 0
    rows.writerow(names)
    for unit in units:
        cells = (getattr(unit, name) for name in names)
        rows.writerow([msgspec.json.encode(cell).decode() if isinstance(cell, dict | list) else cell for cell in cells])
        count += 1
    return count


def _write_ndjson(out: IO[str], units: Iterable[UnitLine]) -> int:
    count = 0
    for unit in units:
        out.write(msgspec.json.encode(unit).decode() + "\n")
        count += 1
    return count


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
