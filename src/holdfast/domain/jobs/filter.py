"""The filter grammar of jobs: ``state=dead kind=mail-* since=1h error=timeout``."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime
from typing import Any

from holdfast.domain.durations import as_duration
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import InvalidInput

#: Names in the grammar, and the fields of the selector. Lists take several values: ``queue=a,b``.
LISTS = {
    "id": "ids",
    "key": "keys",
    "label": "labels",
    "tag": "tags",
    "queue": "queues",
    "kind": "kinds",
    "state": "states",
}
SINGLE = ("error", "since", "until")
#: A character, or an escaped one.
_CHARACTER = re.compile(r"\\[\\,]|.", re.DOTALL)


def parse_filter(text: str, *, now: datetime | None = None) -> Selector:
    """Parse conditions of the form ``name=value``, all of which must hold.

    Values with spaces are quoted; commas separate the values of a list. Within quotes ``\\,`` is a literal comma,
    and ``\\\\`` a backslash. ``since`` and ``until`` are timestamps (RFC 3339) or ages (``1h``).
    """
    try:
        conditions = shlex.split(text)
    except ValueError as error:
        raise InvalidInput(f"the filter {text!r} cannot be read: {error}", hint="Close the quotes.") from None
    values: dict[str, list[str]] = {}
    for condition in conditions:
        name, equals, value = condition.partition("=")
        if not equals or name not in (*LISTS, *SINGLE):
            raise InvalidInput(
                f"the filter does not know {condition!r}", hint=f"Its words: {', '.join((*LISTS, *SINGLE))}."
            )
        if name in values:
            raise InvalidInput(f"the filter says {name!r} twice", hint=f"Write {name}=one,other.")
        values[name] = _split(value) if name in LISTS else [value]
    return make_selector(values, now=now)


def format_filter(selector: Selector) -> str:
    """The inverse of :func:`parse_filter`; an empty string means everything."""
    conditions = []
    for word, name in LISTS.items():
        values = getattr(selector, name)
        if values is not None:
            conditions.append(f"{word}={format_values(*values)}")
    for word in SINGLE:
        value = getattr(selector, word)
        if value is not None:
            conditions.append(f"{word}={shlex.quote(value.isoformat() if isinstance(value, datetime) else value)}")
    return " ".join(conditions)


def format_values(*values: object) -> str:
    """The values of a list, escaped and quoted."""
    return shlex.quote(",".join(re.sub(r"[\\,]", r"\\\g<0>", str(value)) for value in values))


def _split(text: str) -> list[str]:
    """The inverse of :func:`format_values`."""
    values = [""]
    for character in _CHARACTER.findall(text):
        if character == ",":
            values.append("")
        else:
            values[-1] += character[-1]
    return values


def make_selector(values: dict[str, list[str]], *, now: datetime | None = None) -> Selector:
    """A selector from names of the grammar and their values."""
    conditions: dict[str, Any] = {LISTS[name]: tuple(each) for name, each in values.items() if name in LISTS}
    if "ids" in conditions:
        conditions["ids"] = tuple(_number(value) for value in conditions["ids"])
    if "error" in values:
        conditions["error"] = values["error"][0]
    for name in ("since", "until"):
        if name in values:
            conditions[name] = parse_timestamp(values[name][0], now=now or datetime.now(UTC))
    return Selector(**conditions)


def parse_timestamp(text: str, *, now: datetime, ahead: bool = False) -> datetime:
    """Parse a timestamp with a zone (RFC 3339), or an age before *now*; with *ahead*, a delay after it."""
    try:
        timestamp = datetime.fromisoformat(text)
    except ValueError:
        return now + as_duration(text) if ahead else now - as_duration(text)
    if timestamp.tzinfo is None:
        raise InvalidInput(f"{text!r} has no time zone", hint=f"Write {timestamp.isoformat()}Z for UTC.")
    return timestamp


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidInput(
            f"{text!r} is no job's id", hint="An id is a number; find jobs by label or key with holdfast ls."
        )
    return int(text)
