"""Texts and durations as people write them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterable
from datetime import timedelta

from holdfast.errors import InvalidInput, InvalidText

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}

MAX_NAME = 200
MAX_KEY = 1000
#: A part of a path is no longer.
MAX_PART = 200
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_+.\-]+")
#: Everything below a space, DEL and the C1 controls, which a terminal would obey.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)}
#: A hundred years.
LONGEST = timedelta(days=36_525)


def checked_text(text: str, *, what: str) -> str:
    """Return *text* if every store can keep it.

    Raises:
        InvalidText: It holds a NUL, or half of a character.
    """
    if not isinstance(text, str):
        raise InvalidInput(f"{what} is a text, not {text!r}", what=what)
    if "\0" in text:
        raise InvalidText(f"{what} holds a NUL character", what=what)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidText(f"{what} holds half of a character (a lone surrogate)", what=what) from None
    return text


def clean_text(text: str, *, limit: int | None = None) -> str:
    """*text* with what cannot be stored replaced, and cut to *limit* characters."""
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def harmless(text: str) -> str:
    """The text without anything that a terminal would obey, or that cannot be printed."""
    return text.translate(_CONTROLS).encode("utf-8", "backslashreplace").decode("utf-8")


def as_argument(name: str) -> str:
    """A name as the last word of a command line that somebody copies into a shell: quoted, and never an option."""
    return f"-- {shlex.quote(name)}" if name.startswith("-") else shlex.quote(name)


def checked_name(text: str, *, what: str) -> str:
    """Return *text* if it can serve as a name: not empty, not long, all of it storable."""
    if not isinstance(text, str):
        raise InvalidInput(f"{what} is a text, not {text!r}", what=what)
    if not text or text != text.strip():
        raise InvalidInput(f"{what} cannot be empty or begin or end with a space: {text!r}", what=what)
    if len(text) > MAX_NAME:
        raise InvalidInput(f"{what} is longer than {MAX_NAME} characters: {text[:40]!r}…", what=what)
    return checked_text(text, what=what)


def checked_number(number: int, *, what: str) -> int:
    """Return *number* if it is a whole number of 32 bits."""
    if not isinstance(number, int) or not -(2**31) <= number < 2**31:
        raise InvalidInput(f"{what} is a whole number of 32 bits, not {number!r}")
    return number


def checked_actor(name: str, *, system: Container[str] = ()) -> str:
    """Return *name* if it can stand for a person, or is one of the *system*'s own actors."""
    checked_name(name, what="the actor")
    if name.startswith("holdfast:") and name not in system:
        raise InvalidInput(f"{name!r} is no person: names that begin with 'holdfast:' are the system's own")
    return name


def parse_duration(text: str) -> timedelta:
    """Read ``90``, ``1.5h``, ``1h30m`` or ``500ms``; a bare number is seconds."""
    compact = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        return _checked_duration(timedelta(seconds=min(float(compact), 1e12)))
    if not compact or _PART.sub("", compact):
        raise InvalidInput(f"not a duration: {text!r}", hint="Write it like 90, 1.5h, 1h30m or 500ms.")
    seconds = sum(float(n) * _SECONDS[unit] for n, unit in _PART.findall(compact))
    return _checked_duration(timedelta(seconds=min(seconds, 1e12)))


def checked_count(count: int) -> int:
    """Return *count* if it is a whole number that every store can keep."""
    if isinstance(count, bool) or not isinstance(count, int) or not -(2**63) <= count < 2**63:
        raise InvalidInput(f"progress is counted in whole numbers, not {count!r}")
    return count


def as_bytes(size: int | str) -> int:
    """A size in bytes; ``"512M"`` and the like count in powers of 1024.

    Raises:
        InvalidInput: It is no size.
    """
    if isinstance(size, str):
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", size.strip(), re.IGNORECASE)
        if not found:
            raise InvalidInput(f"{size!r} is no size", hint='Write a number of bytes, or "512M", "8G".')
        size = int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))
    if size <= 0:
        raise InvalidInput(f"a size is more than nothing, not {size}")
    return size


def say_size(size: float) -> str:
    """A number of bytes for people, in powers of 1024: ``512 MiB``, ``1.5 GiB``."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.3g} {unit}" if size < 1000 << shift else f"{size / (1 << shift):,.0f} {unit}"
    return f"{size:.0f} bytes"


#: How people write a duration: seconds, "90s", "1h 30m", or what Python has for it.
Duration = timedelta | float | str


def as_duration(value: timedelta | float | str) -> timedelta:
    """A duration from a timedelta, a number of seconds, or a text such as ``5m``; never negative."""
    if isinstance(value, str):
        return parse_duration(value)
    try:
        duration = value if isinstance(value, timedelta) else timedelta(seconds=value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"not a duration: {value!r}") from None
    return _checked_duration(duration)


def _checked_duration(duration: timedelta) -> timedelta:
    if not timedelta(0) <= duration <= LONGEST:
        raise InvalidInput(f"a duration is between nothing and {LONGEST.days} days, not {duration}")
    return duration


def say_duration(delay: timedelta) -> str:
    """Write a duration for people: ``45 s``, ``3 min``, ``2 h 5 min``, ``4 d``."""
    seconds = round(delay.total_seconds())
    if seconds < 120:
        return f"{seconds} s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 120:
        return f"{minutes} min"
    if hours < 48:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{days} d"


def per_second(rate: float) -> str:
    """A rate for people."""
    return f"{rate:,.0f}/s" if rate >= 100 else f"{rate:.3g}/s"


def span(seconds: float) -> str:
    """A duration in its largest unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def path_part(value: str) -> str:
    """A value as a part of a path: what is not plain is escaped, what is long is told by its digest."""
    escaped = _NOT_PLAIN.sub(lambda found: "".join(f"%{byte:02X}" for byte in _bytes(found[0])), value)
    if escaped in (".", ".."):
        escaped = escaped.replace(".", "%2E")
    if len(escaped) <= MAX_PART:
        return escaped
    import hashlib

    return f"{escaped[: MAX_PART - 40]}%~{hashlib.sha256(_bytes(value)).hexdigest()[:32]}"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    import difflib  # only mistakes need it

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)
