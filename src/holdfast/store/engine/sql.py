"""Named SQL statements, read from ``.sql`` files.

``shared_sql/`` holds the statements that both backends share, in PostgreSQL's spelling; ``sqlite/`` and
``postgres/`` hold the others. Each file describes one noun. ``-- name: x`` begins a statement, with
parameters ``:like_this``; ``:leases.token`` is a column of a table of parameters. PostgreSQL receives it as
an array; SQLite runs the statement once for each row. ``-- fragment: x`` begins a text that statements
include as ``{x}``. ``holdfast.`` stands for the schema. A statement for SQLite may consist of several,
divided by ``;``, because SQLite has no common table expression that writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from msgspec import Struct

#: The folder of the statements that both backends share.
SHARED = "shared_sql"
_STORE = Path(__file__).parents[1]
_HEAD = re.compile(r"\n-- (name|fragment): (\w+)(?=\n|\Z)")  # "^" would try every character of all files
_COMMENT = re.compile(r"\s*--[^\n]*")
_INCLUDE = re.compile(r"\{(\w+)\}")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+(?:\.[a-z_]+)?)")

#: The rules that make SQLite's spelling, in this order (docs/adr/0012-shared-sql.md); compiled if their text occurs.
_TO_SQLITE: tuple[tuple[str, str, str | Callable[[re.Match[str]], str]], ...] = (
    ("holdfast.now", r"\(SELECT holdfast\.now\(\)\)", ":now"),
    ("holdfast.same", r"\bholdfast\.same\(([^,()]+), ([^,()]+)\)", r"\1 = \2"),
    ("holdfast.", r"\bholdfast\.", "holdfast_"),
    ("::", r"::\w+(\[\])?", ""),
    ("= ANY(:", r"= ANY\(:(\w+)\)", r"IN (SELECT value FROM json_each(:\1))"),
    ("unnest(", r"\bunnest\(:(\w+)\) AS (\w+) \(value\)", r"json_each(:\1) AS \2"),
    ("recordset(", r"\bjsonb_to_recordset\(:(\w+)\) AS (\w+) \(([^)]*)\)", lambda match: _records(*match.groups())),
    ("FOR ", r"\s+FOR (NO KEY UPDATE|UPDATE|KEY SHARE)( OF \w+)?( SKIP LOCKED)?", ""),
    ("IS DISTINCT", r"\bIS DISTINCT FROM\b", "IS NOT"),
    ("SELECT FROM", r"\bSELECT FROM\b", "SELECT 1 FROM"),
    ("strpos(", r"\bstrpos\(", "instr("),
    ("LIKE :", r"\bLIKE :", "GLOB :"),
    ("deleted_", r"(?s)(?:WITH )?\bdeleted_\w+ AS \((DELETE .*?)\),?\n(?=deleted_|DELETE|UPDATE)", r"\1;\n"),
    ("= ANY(ARRAY(", r"= ANY\(ARRAY(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))\)", r"IN \1"),
)


class _Piece(Struct, frozen=True):
    """A statement or a fragment as its file has it."""

    sort: str
    noun: str
    folder: str
    text: str


@cache
def _pieces(backend: str) -> dict[str, _Piece]:
    """Read the files of *backend*; a name must not occur twice."""
    pieces: dict[str, _Piece] = {}
    for folder in (SHARED, backend):
        for file in sorted((_STORE / folder).glob("*.sql")):
            noun = file.stem
            _, *heads = _HEAD.split("\n" + file.read_bytes().decode())
            for sort, name, text in zip(heads[::3], heads[1::3], heads[2::3], strict=True):
                if name in pieces:
                    raise ValueError(f"{backend}: the statement {name} is there twice")
                pieces[name] = _Piece(sort, noun, folder, text)
    return pieces


@cache
def statement(backend: str, name: str) -> str:
    """Return one statement of *backend* (``sqlite`` or ``postgres``), without comments.

    Statements are translated one by one when they are first used: a command that runs three
    of them must not wait for all.
    """
    pieces = _pieces(backend)
    piece = pieces[name]
    text = _COMMENT.sub("", piece.text).strip()
    if piece.folder == SHARED and backend == "sqlite":
        text = to_sqlite(text)
    return _INCLUDE.sub(lambda match: statement(backend, match[1]) if match[1] in pieces else match[0], text)


def statements(backend: str, *, noun: str | None = None) -> dict[str, str]:
    """Return all statements of *backend*, or those of one noun, by name."""
    pieces = _pieces(backend).items()
    return {
        name: statement(backend, name) for name, piece in pieces if piece.sort == "name" and noun in (None, piece.noun)
    }


def to_sqlite(text: str) -> str:
    """Return a shared statement in SQLite's spelling."""
    for needed, pattern, replacement in _TO_SQLITE:
        if needed in text:
            text = re.sub(pattern, replacement, text)
    return text


def _records(parameter: str, alias: str, columns: str) -> str:
    """Return the rows of a JSON array as a table."""
    names = (column.split()[0] for column in columns.split(","))
    cells = ", ".join(f"value->>'{name}' AS {name}" for name in names)
    return f"(SELECT {cells} FROM json_each(:{parameter})) AS {alias}"  # noqa: S608 - text from our own files


def migrations(backend: str) -> list[str]:
    """Return the numbered migrations of *backend*, the oldest first."""
    files = sorted((_STORE / backend / "migrations").glob("*.sql"))
    return [file.read_text(encoding="utf-8") for file in files]


def parameters(text: str) -> set[str]:
    """Return the names of the parameters of a statement."""
    return {name.partition(".")[0] for name in placeholders(text)}


def placeholders(text: str) -> set[str]:
    """Return the parameters of a statement as it names them, ``leases.token`` for a column."""
    return set(_PARAMETER.findall(text))


def compose(backend: str, name: str, where: tuple[str, ...]) -> str:
    """Return the statement *name* with its conditions, all of them from the ``.sql`` files."""
    text = statement(backend, name)
    if "{where}" not in text:
        return text
    return text.replace("{where}", " AND ".join(f"({statement(backend, each)})" for each in where) or "true")


def for_psycopg(text: str) -> str:
    """Return the statement with parameters as psycopg wants them."""
    return _PARAMETER.sub(r"%(\1)s", text.replace("%", "%%"))
