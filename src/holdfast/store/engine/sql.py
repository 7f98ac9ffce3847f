"""Named SQL statements, one ``.sql`` file per noun.

A statement begins with ``-- name: word`` and names its parameters ``:like_this``. In a
PostgreSQL file, ``holdfast.`` stands for the schema. In a SQLite file a statement may be
several, divided by ``;``: SQLite has no common table expression that writes.
"""

from __future__ import annotations

import re
from pathlib import Path

_HERE = Path(__file__).parents[1]
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
_COMMENT = re.compile(r"^\s*--.*$\n?", re.MULTILINE)


def statements(backend: str, *, noun: str = "*") -> dict[str, str]:
    """All statements of *backend* (``sqlite`` or ``postgres``), or of one noun, by name, without comments."""
    found: dict[str, str] = {}
    for file in sorted((_HERE / backend).glob(f"{noun}.sql")):
        parts = _NAME.split(file.read_text(encoding="utf-8"))
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            if name in found:
                raise ValueError(f"{backend}: the statement {name} is there twice")
            found[name] = _COMMENT.sub("", text).strip()
    return found


def migrations(backend: str) -> list[str]:
    """The numbered migrations of *backend*, the oldest first."""
    files = sorted((_HERE / backend / "migrations").glob("*.sql"))
    return [file.read_text(encoding="utf-8") for file in files]


def parameters(statement: str) -> set[str]:
    """The names of the parameters of a statement."""
    return set(_PARAMETER.findall(statement))


def compose(known: dict[str, str], name: str, where: tuple[str, ...]) -> str:
    """The statement *name* with its conditions, all of them from the ``.sql`` files."""
    statement = known[name]
    if "{where}" not in statement:
        return statement
    return statement.replace("{where}", " AND ".join(f"({known[part]})" for part in where) or "true")


def for_psycopg(statement: str) -> str:
    """The statement with parameters as psycopg wants them."""
    return _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%"))
