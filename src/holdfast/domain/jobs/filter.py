"""The filter grammar: ``state=dead kind=mail-* since=1h error=timeout``, one for all who ask for jobs."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime
from typing import Any

from holdfast.domain.durations import as_duration
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import InvalidInput

#: The words of the grammar, and the selector's names for them. Lists take several values: ``queue=a,b``.
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
#: A letter, or one that a backslash stands before.
_SIGN = re.compile(r"\\[\\,]|.", re.DOTALL)


def parse_filter(text: str, *, now: datetime | None = None) -> Selector:
    """The selector that *text* describes: terms of the form ``name=value``, all of which must hold.

    Values with spaces are quoted; a list's values are divided by commas. Within quotes ``\\,`` is a comma that divides
    nothing, and ``\\\\`` a backslash. ``since`` and ``until`` are moments (RFC 3339) or ages (``1h``).

    Raises:
        InvalidInput: A term is not understood; the message names it.
    """
    try:
        terms = shlex.split(text)
    except ValueError as error:
        raise InvalidInput(f"the filter {text!r} cannot be read: {error}", hint="Close the quotes.") from None
    given: dict[str, list[str]] = {}
    for lease_duration in terms:
        name, found, value = lease_duration.partition("=")
        if not found or name not in (*LISTS, *SINGLE):
            raise InvalidInput(
                f"the filter does not know {lease_duration!r}", hint=f"Its words: {', '.join((*LISTS, *SINGLE))}."
            )
        if name in given:
            raise InvalidInput(f"the filter says {name!r} twice", hint=f"Write {name}=one,other.")
        given[name] = _divided(value) if name in LISTS else [value]
    return make_selector(given, now=now)


def format_filter(selector: Selector) -> str:
    """The filter that :func:`parse_filter` reads as *selector*; an empty text means everything."""
    terms = []
    for word, name in LISTS.items():
        values = getattr(selector, name)
        if values is not None:
            terms.append(f"{word}={format_values(*values)}")
    for word in SINGLE:
        value = getattr(selector, word)
        if value is not None:
            terms.append(f"{word}={shlex.quote(value.isoformat() if isinstance(value, datetime) else value)}")
    return " ".join(terms)


def format_values(*values: object) -> str:
    """The values of a list, as a filter says them."""
    return shlex.quote(",".join(re.sub(r"[\\,]", r"\\\g<0>", str(value)) for value in values))


def _divided(text: str) -> list[str]:
    """The values of a list, as :func:`say_values` says them."""
    values = [""]
    for sign in _SIGN.findall(text):
        if sign == ",":
            values.append("")
        else:
            values[-1] += sign[-1]
    return values


def make_selector(given: dict[str, list[str]], *, now: datetime | None = None) -> Selector:
    """A selector from words and their values."""
    conditions: dict[str, Any] = {LISTS[name]: tuple(values) for name, values in given.items() if name in LISTS}
    if "ids" in conditions:
        conditions["ids"] = tuple(_number(value) for value in conditions["ids"])
    if "error" in given:
        conditions["error"] = given["error"][0]
    for name in ("since", "until"):
        if name in given:
            conditions[name] = parse_timestamp(given[name][0], now=now or datetime.now(UTC))
    return Selector(**conditions)


def parse_timestamp(text: str, *, now: datetime, ahead: bool = False) -> datetime:
    """A moment with a zone (RFC 3339), or an age counted back from *now*; *ahead*: a time from now on."""
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
