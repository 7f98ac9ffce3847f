"""Names: text that every store can keep, and that shells, paths and terminals take safely."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterable

from holdfast.errors import InvalidInput, InvalidKind, InvalidText

MAX_NAME = 200
#: Of unique keys, in characters. An index row of PostgreSQL holds kind and key together, at most 2,704 bytes.
MAX_KEY = 512
MAX_KIND_AND_KEY_BYTES = 2600
MAX_PATH_PART = 200
_SHORTER_KEY = "Use a digest of the long value as the key."
_NOT_PLAIN = r"[^A-Za-z0-9_+.\-]+"
#: Control characters, which a terminal would execute: those below the space, DEL and C1. Tab and newline are allowed.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)}


def plain_text(text: str) -> str:
    """Return *text* as a ``str``: a value of a subclass (Markup, numpy.str_, an enum) is copied.

    Encoders and drivers know the class ``str`` only.
    """
    return text if type(text) is str else str.__str__(text)


def class_name(value: object) -> str:
    """The name of the class of *value*, read without its own code: a metaclass may raise in ``__name__``."""
    name: str = type.__dict__["__name__"].__get__(type(value))
    return name


def checked_text(text: str, *, label: str) -> str:
    """Return *text* as a plain ``str`` if every store can keep it; *label* names it in the error."""
    if not isinstance(text, str):
        raise InvalidInput(f"{label} is a text, not {text!r}", label=label)
    text = plain_text(text)  # a method of a subclass may do something else
    if "\0" in text:
        raise InvalidText(f"{label} holds a NUL character", label=label)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidText(f"{label} holds half of a character (a lone surrogate)", label=label) from None
    return text


def clean_text(text: str, *, limit: int | None = None) -> str:
    """Replace characters that cannot be stored, and cut to *limit* characters; returns a plain ``str``."""
    text = plain_text(text)
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def escape_controls(text: str) -> str:
    """Escape control characters and lone surrogates, so that a terminal prints them."""
    return text if text.isprintable() else text.translate(_CONTROLS).encode("utf-8", "backslashreplace").decode()


def quote_argument(name: str) -> str:
    """Quote a name as the last word of a shell command; a leading dash does not make it an option."""
    return f"-- {shlex.quote(name)}" if name.startswith("-") else shlex.quote(name)


def checked_name(text: str, *, label: str) -> str:
    """Return *text* as a plain ``str`` if it can serve as a name: not empty, not long, all of it storable."""
    if not isinstance(text, str):
        raise InvalidInput(f"{label} is a text, not {text!r}", label=label)
    text = plain_text(text)
    if not text or text != text.strip():
        raise InvalidInput(f"{label} cannot be empty or begin or end with a space: {text!r}", label=label)
    if len(text) > MAX_NAME:
        raise InvalidInput(f"{label} is longer than {MAX_NAME} characters: {text[:40]!r}…", label=label)
    return checked_text(text, label=label)


def checked_key(key: str, *, kind: str) -> str:
    """Return *key* if every store can keep it as the unique key of a job of *kind*."""
    key = checked_text(key, label="the key")
    if not key:
        raise InvalidInput("a unique key cannot be empty")
    if len(key) > MAX_KEY:
        raise InvalidInput(f"a key has at most {MAX_KEY} characters, this one has {len(key):,}", hint=_SHORTER_KEY)
    size = len(key.encode()) + len(kind.encode())
    if size > MAX_KIND_AND_KEY_BYTES:
        raise InvalidInput(f"kind and key take {size:,} bytes; at most {MAX_KIND_AND_KEY_BYTES:,} are allowed")
    return key


def checked_actor(name: str, *, system: Container[str] = ()) -> str:
    """Return *name* if it can stand for a person, or is one of the *system*'s own actors."""
    name = checked_name(name, label="the actor")
    if name.startswith("holdfast:") and name not in system:
        raise InvalidInput(
            f"{name!r} is not a valid name of a person: names that begin with 'holdfast:' are the system's own"
        )
    return name


def path_part(value: str) -> str:
    """Make a value one component of a path: special characters are escaped, long values end in their digest."""
    escaped = re.sub(_NOT_PLAIN, lambda match: "".join(f"%{byte:02X}" for byte in _bytes(match[0])), value)
    if escaped in (".", ".."):
        escaped = escaped.replace(".", "%2E")
    if len(escaped) <= MAX_PATH_PART:
        return escaped
    import hashlib

    return f"{escaped[: MAX_PATH_PART - 40]}%~{hashlib.sha256(_bytes(value)).hexdigest()[:32]}"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant."""
    import difflib  # only mistakes need it

    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def refuse_unknown_options(thing: str, options: Iterable[str], known: Iterable[str]) -> None:
    """Refuse options that do not exist.

    Raises:
        InvalidKind: The hint names the nearest option, or all.
    """
    names = sorted(known)
    for name in sorted(set(options) - set(names)):
        near = nearest_name(name, names)
        hint = f"Did you mean {near!r}?" if near else f"There are: {', '.join(names)}."
        raise InvalidKind(f"{thing} has no option {name!r}", hint=hint)


def checked_variable(name: str) -> str:
    """Return *name* if a command may have an environment variable of this name."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name) or name.startswith("HOLDFAST_"):
        hint = "Write NAME=VALUE; names that begin with HOLDFAST_ are reserved."
        raise InvalidInput(f"{name!r} cannot be a variable", hint=hint)
    return name


def parse_address(address: str) -> tuple[str, int]:
    """Split ``HOST:PORT``; ``:PORT`` alone means the loopback."""
    host, _, port = address.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidInput(f"{address!r} is not HOST:PORT", hint="For example 127.0.0.1:9100.")
    return host.strip("[]") or "127.0.0.1", int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    import ipaddress  # a millisecond, which most calls of the command line do without

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
