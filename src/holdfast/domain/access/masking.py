"""Secrets in what people look at: known by the names of fields, or declared by the kind."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import msgspec

MASK = "***"
#: A shorter secret is masked in texts as a whole word alone: within words it would blot out half of them.
MIN_SECRET_CHARS = 4
#: And one that is still shorter not at all.
MIN_SECRET_WORD_CHARS = 3
#: What is nested deeper than this is blotted out as a whole: a walk through it could take the program down.
MAX_MASK_DEPTH = 100
#: Marks a cut in a text. Lists cut errors without the mark, but only errors longer than this.
CUT, MIN_CUT_CHARS = "…", 300

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ALONE = frozenset(
    {
        *("password", "passwords", "passwd", "passphrase", "pwd", "secret", "secrets", "token", "tokens"),
        *("apikey", "credential", "credentials", "authorization", "cookie", "cookies", "bearer", "otp", "cvv", "pin"),
        *("privatekey", "accesskey", "secretkey", "dsn"),
    }
)
_PAIRED = frozenset({("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key"), ("signing", "key")})
#: Words after which it is no secret: how many, how long, of what sort.
_HARMLESS = frozenset(
    {"count", "counts", "limit", "max", "length", "size", "type", "name", "id", "ids", "path", "expires"}
)

_SAID = (
    # A URL with a password; a header; name=value and "name": "value".
    (re.compile(r"(://[^\s:/@]{1,200}:)[^\s/@]{1,500}(?=@)"), rf"\1{MASK}"),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1 {MASK}"),
    (
        re.compile(
            # A short number after "token" is the fence of a lease.
            r"((?:password|passwd|passphrase|pwd|secret|token(?![\"']?\s{0,3}[:=]\s{0,3}\d{1,9}\b)|api[_-]?key|access[_-]?key|private[_-]?key|authorization)"
            r"[\"']?\s{0,3}[:=]\s{0,3}[\"']?)(?!\*\*\*)(?!(?:bearer|basic)\s)[^\s\"',;&}]+",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    (
        re.compile(r"(--?(?:password|passwd|passphrase|secret|token|api-?key)\s+)(?!-)(?!\*\*\*)\S+", re.IGNORECASE),
        rf"\1{MASK}",
    ),
)
_CALLER = re.compile(r"//[^/@]+@")
#: A URL whose password is cut off before its end; digits are a port.
_CUT_URL = re.compile(r"(://[^\s:/@]{1,200}:)(?!\d{1,5}$)[^\s/@]{1,500}$")


def is_secret(name: str, declared: Collection[str] = ()) -> bool:
    """Whether a field of this name holds a secret."""
    if name in declared:
        return True
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[-1] in _HARMLESS:
        return False
    return not _ALONE.isdisjoint(words) or any(pair in _PAIRED for pair in pairwise(words))


def mask_value(value: Any, declared: Collection[str] = (), values: Collection[str] = ()) -> Any:
    """The value with the secrets in it blotted out, by the names of fields and by their *values*.

    What is nested more than 100 levels deep is blotted out whole.
    """
    return _masked(value, declared, values, MAX_MASK_DEPTH)


def _masked(value: Any, declared: Collection[str], values: Collection[str], left: int) -> Any:
    match value:
        case dict() | list() | tuple() if not left:
            return MASK
        case dict():
            return {
                key: _blotted(inner) if is_secret(str(key), declared) else _masked(inner, declared, values, left - 1)
                for key, inner in value.items()
            }
        case list() | tuple():
            return [
                MASK if _follows_option(value, place) else _masked(inner, declared, values, left - 1)
                for place, inner in enumerate(value)
            ]
        case str():
            return mask_text(value, values)
        case _:
            return value


def _blotted(value: Any) -> Any:
    """What is not there, and what is switched on or off, may be seen."""
    return value if value is None or isinstance(value, bool) or value in ("", [], {}) else MASK


def _follows_option(words: list[Any] | tuple[Any, ...], place: int) -> bool:
    """Whether the word before is an option that takes a secret: --password x."""
    before = words[place - 1] if place else None
    is_option = isinstance(before, str) and before.startswith("-") and "=" not in before
    return is_option and is_secret(str(before)) and isinstance(words[place], str) and not words[place].startswith("-")


def mask_json(text: str | None, declared: Collection[str] = (), values: Collection[str] = ()) -> Any:
    """JSON as a value with its secrets blotted out; what is no JSON is taken for a text."""
    if text is None:
        return None
    try:
        return mask_value(msgspec.json.decode(text), declared, values)
    except msgspec.DecodeError:
        return mask_text(text, values)
    except RecursionError:
        return MASK


def secret_values(value: Any, declared: Collection[str] = ()) -> list[str]:
    """The secrets in a payload, the longest first, to be blotted out of logs and errors."""
    found = {text for text in _secrets(value, declared) if len(text.strip()) >= MIN_SECRET_WORD_CHARS}
    spelt = {spelling for text in found for spelling in (text, quote(text, safe=""), _in_json(text))}
    return sorted(spelt, key=lambda text: (-len(text), text))


def _in_json(text: str) -> str:
    return msgspec.json.encode(text).decode()[1:-1]


def _secrets(value: Any, declared: Collection[str]) -> Iterator[str]:
    """The texts in a value that are secrets. It does not call itself: a value may be nested as deep as it likes."""
    found = [(value, False)]
    while found:
        value, inside = found.pop()
        match value:
            case dict():
                found += ((inner, inside or is_secret(str(key), declared)) for key, inner in value.items())
            case list() | tuple():
                found += ((inner, inside or _follows_option(value, place)) for place, inner in enumerate(value))
            case str() if inside:
                yield value
                yield from (
                    line for line in value.splitlines() if len(line) >= MIN_SECRET_CHARS
                )  # a key of several lines
            case int() | float() if inside and not isinstance(value, bool):
                yield str(value)
            case _:
                pass


def mask_text(text: str, values: Collection[str] = ()) -> str:
    """A text without these secrets, nor what it says to be one (``password=…``, a URL with a password)."""
    return _mask_said(_mask_values(text, values))


def mask_cut(text: str, values: Collection[str] = ()) -> str:
    """The same of a text that may have been cut, before each "…" and after it, or at its end where it is long.

    What is left there of a secret is blotted out too, if it has four characters or more.
    """
    pieces = _mask_values(text, values).split(CUT)
    for place, piece in enumerate(pieces):
        kept = _mask_rest(piece, values) if place else piece
        has_end = place == len(pieces) - 1 and len(text) < MIN_CUT_CHARS
        pieces[place] = kept if has_end else _CUT_URL.sub(rf"\1{MASK}", _mask_beginning(kept, values))
    return _mask_said(CUT.join(pieces))


def mask_url(url: str) -> str:
    """A URL that somebody may be shown: without who calls it, and without the values of its query."""
    place, found, query = url.partition("?")
    said = (
        name + "=" + MASK if equals else MASK for name, equals, _ in (each.partition("=") for each in query.split("&"))
    )
    return _CALLER.sub(f"//{MASK}@", place, count=1) + found + ("&".join(said) if query else "")


def _mask_beginning(text: str, values: Collection[str]) -> str:
    """The text without the beginning of a secret at its end."""
    left = [size for value in values for size in _sizes(value, text) if text.endswith(value[:size])]
    return text[: -max(left)] + MASK if left else text


def _mask_rest(text: str, values: Collection[str]) -> str:
    """The text without the end of a secret at its beginning."""
    left = [size for value in values for size in _sizes(value, text) if text.startswith(value[-size:])]
    return MASK + text[max(left) :] if left else text


def _sizes(value: str, text: str) -> range:
    return range(MIN_SECRET_CHARS, min(len(value), len(text) + 1))


def _mask_values(text: str, values: Collection[str]) -> str:
    for value in values:
        if len(value) >= MIN_SECRET_CHARS:
            text = text.replace(value, MASK)
        elif value in text:
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", MASK, text)
    return text


def _mask_said(text: str) -> str:
    for pattern, instead in _SAID:
        text = pattern.sub(instead, text)
    return text


def mask_store_url(url: str) -> str:
    """Hide every password in the URL of a store."""
    text = re.sub(r"(//[^:/?#@]*:).*@", r"\1***@", url)
    return re.sub(r"(password=)[^&\s]*", r"\1***", text, flags=re.IGNORECASE)
