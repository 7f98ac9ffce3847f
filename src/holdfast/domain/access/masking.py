"""Masking: secrets are hidden in every view, by the name of their field or by declaration of the kind."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cache
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import msgspec

MASK = "***"
#: A shorter secret is masked only as a whole word: inside words it would mask unrelated text.
MIN_SECRET_CHARS = 4
#: A still shorter one is not masked at all.
MIN_SECRET_WORD_CHARS = 3
#: Deeper values are masked whole: a recursive walk could overflow the stack.
MAX_MASK_DEPTH = 100
#: Marks a cut in a text. Lists cut errors without the mark, but only errors longer than this.
CUT, MIN_CUT_CHARS = "…", 300

_NAME_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_WORDS = frozenset(
    {
        *("password", "passwords", "passwd", "passphrase", "pwd", "secret", "secrets", "token", "tokens"),
        *("apikey", "credential", "credentials", "authorization", "cookie", "cookies", "bearer", "otp", "cvv", "pin"),
        *("privatekey", "accesskey", "secretkey", "dsn"),
    }
)
_SECRET_PAIRS = frozenset((word, "key") for word in ("api", "access", "private", "secret", "signing"))
#: Last words of names that describe a secret without holding it.
_HARMLESS_ENDINGS = frozenset(
    {"count", "counts", "limit", "max", "length", "size", "type", "name", "id", "ids", "path", "expires"}
)

#: Options whose value is a name and a password: curl -u name:password.
_USER_OPTIONS = ("-u", "--user", "--proxy-user")
#: Commands that take a password as -pPASSWORD.
_PASSWORD_COMMANDS = r"(mysql|mariadb)[\w-]*|sshpass"  # noqa: S105 - names of commands
#: Options of commands whose next word is a password.
_PASSWORD_OPTIONS = {"sshpass": "-p", "redis-cli": "-a"}
#: A payload's longer texts are not searched for patterns; a shorter match may be a common word.
MAX_SEARCHED_CHARS, MIN_PATTERN_CHARS = 10_000, 6
#: A URL that is cut within its password; digits are a port.
_CUT_URL = r"(://[^\s:/@]{1,200}:)(?!\d{1,5}$)[^\s/@]{1,500}$"


class SecretField(msgspec.Struct, frozen=True):
    """A field of the payloads of a kind that views mask."""

    kind: str
    name: str


def is_secret(name: str, declared: Collection[str] = ()) -> bool:
    """Whether a field of this name holds a secret."""
    if name in declared:
        return True
    words = [word.lower() for word in _NAME_WORDS.findall(name)]
    if not words or words[-1] in _HARMLESS_ENDINGS:
        return False
    return not _SECRET_WORDS.isdisjoint(words) or any(pair in _SECRET_PAIRS for pair in pairwise(words))


def mask_value(
    value: Any, declared: Collection[str] = (), values: Collection[str] = (), *, depth: int = MAX_MASK_DEPTH
) -> Any:
    """Mask secrets by the names of fields, and *values* wherever they occur."""
    match value:
        case dict() | list() | tuple() if not depth:
            return MASK
        case dict():
            return {
                _mask_values(key, values) if isinstance(key, str) else key: _mask_secret(inner)
                if is_secret(str(key), declared)
                else mask_value(inner, declared, values, depth=depth - 1)
                for key, inner in value.items()
            }
        case list() | tuple():
            return [
                inner.removesuffix(hidden) + MASK
                if (hidden := _hidden_part(value, place))
                else mask_value(inner, declared, values, depth=depth - 1)
                for place, inner in enumerate(value)
            ]
        case str():
            return mask_text(value, values)
        case _:
            return value


def _mask_secret(value: Any) -> Any:
    """Missing, empty and boolean values stay visible."""
    return value if value is None or isinstance(value, bool) or value in ("", [], {}) else MASK


def _hidden_part(words: list[Any] | tuple[Any, ...], place: int) -> str:
    """The secret at the end of a word of a command: --password x, -u name:x, mysql -px."""
    word, before = words[place], words[place - 1] if place else None
    if not isinstance(word, str):
        return ""
    executable = str(words[0]).rpartition("/")[2]
    if word.startswith("-"):
        return word[2:] if place and word.startswith("-p") and re.fullmatch(_PASSWORD_COMMANDS, executable) else ""
    if not isinstance(before, str) or not before.startswith("-") or "=" in before:
        return ""
    if before == _PASSWORD_OPTIONS.get(executable) and words.index(before) == place - 1:
        return word
    if before in ("-pass", "-passin", "-passout") and word.startswith("pass:"):
        return word.removeprefix("pass:")
    if before in _USER_OPTIONS:
        password = word.partition(":")[2]
        return "" if password.isdecimal() else password
    return word if is_secret(before) else ""


def mask_json(text: str | None, declared: Collection[str] = (), values: Collection[str] = ()) -> Any:
    """Decode JSON and mask its secrets; text that is not JSON is masked as text."""
    if text is None:
        return None
    try:
        return mask_value(msgspec.json.decode(text), declared, values)
    except msgspec.DecodeError:
        return mask_text(text, values)
    except RecursionError:
        return MASK


def secret_values(value: Any, declared: Collection[str] = ()) -> list[str]:
    """The secrets in a payload in every spelling, the longest first, for masking logs and errors."""
    secrets = {text for text in _secrets(value, declared) if len(text.strip()) >= MIN_SECRET_WORD_CHARS}
    spellings = {
        spelling
        for text in secrets
        for spelling in (text, quote(text, safe=""), msgspec.json.encode(text).decode()[1:-1])
    }
    return sorted(spellings, key=lambda text: (-len(text), text))


def _secrets(value: Any, declared: Collection[str]) -> Iterator[str]:
    """The secret strings in a value. Iterative: values may be nested to any depth."""
    pending = [(value, False)]
    while pending:
        value, inside = pending.pop()
        match value:
            case dict():
                pending += ((inner, inside or is_secret(str(key), declared)) for key, inner in value.items())
            case list() | tuple():
                yield from (hidden for place in range(len(value)) if (hidden := _hidden_part(value, place)))
                pending += ((inner, inside) for inner in value)
            case str() if inside:
                yield value
                # A key of several lines.
                yield from (line for line in value.splitlines() if len(line) >= MIN_SECRET_CHARS)
            case str():
                yield from _pattern_secrets(value[:MAX_SEARCHED_CHARS])
            case int() | float() if inside and not isinstance(value, bool):
                yield str(value)
            case _:
                pass


def mask_text(text: str, values: Collection[str] = ()) -> str:
    """Mask *values*, and text that looks like a secret (``password=…``, a URL with a password)."""
    return _mask_patterns(_mask_values(text, values))


def mask_cut(text: str, values: Collection[str] = ()) -> str:
    """Mask a text that may be cut before or after each "…", or at its end if it is long.

    Fragments of secrets at a cut are masked too, from four characters on.
    """
    pieces = _mask_values(text, values).split(CUT)
    for place, piece in enumerate(pieces):
        kept = _mask_rest(piece, values) if place else piece
        has_end = place == len(pieces) - 1 and len(text) < MIN_CUT_CHARS
        pieces[place] = kept if has_end else re.sub(_CUT_URL, rf"\1{MASK}", _mask_beginning(kept, values))
    return _mask_patterns(CUT.join(pieces))


def mask_search(text: str, values: Collection[str]) -> str:
    """Mask a text that people search for. It may hold a secret, or only a piece of one, between wildcards."""
    masked = mask_cut(f"{CUT}{text}{CUT}", values).removeprefix(CUT).removesuffix(CUT)
    return "*".join(
        MASK if len(piece) >= MIN_SECRET_CHARS and any(piece in value for value in values) else piece
        for piece in masked.split("*")
    )


def mask_url(url: str) -> str:
    """Mask everything of a URL behind its host, and its user info: services put tokens into the path."""
    scheme, mark, rest = re.sub(r"//[^/@]+@", f"//{MASK}@", url, count=1).partition("://")
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    return f"{scheme}{mark}{host}" + ("" if rest in (host, f"{host}/") else f"/{MASK}")


def _mask_beginning(text: str, values: Collection[str]) -> str:
    """Mask the beginning of a secret at the end of the text."""
    sizes = [size for value in values for size in _fragment_sizes(value, text) if text.endswith(value[:size])]
    return text[: -max(sizes)] + MASK if sizes else text


def _mask_rest(text: str, values: Collection[str]) -> str:
    """Mask the end of a secret at the beginning of the text."""
    sizes = [size for value in values for size in _fragment_sizes(value, text) if text.startswith(value[-size:])]
    return MASK + text[max(sizes) :] if sizes else text


def _fragment_sizes(value: str, text: str) -> range:
    return range(MIN_SECRET_CHARS, min(len(value), len(text) + 1))


def _mask_values(text: str, values: Collection[str]) -> str:
    for value in values:
        if len(value) >= MIN_SECRET_CHARS:
            text = text.replace(value, MASK)
        elif value in text:
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", MASK, text)
    return text


@cache
def _secret_patterns() -> tuple[re.Pattern[str], ...]:
    """Texts that look like a secret after what is *kept*. To compile them takes milliseconds."""
    return (
        # A URL with a password, or with a token (longer than most names); a header; name=value and "name": "value".
        re.compile(r"(?P<kept>://[^\s:/@]{1,200}:)[^\s/@]{1,500}(?=@)"),
        re.compile(r"(?P<kept>\bhttps?://)[^\s:/@]{16,500}(?=@)"),
        re.compile(r"(?P<kept>\b(?:bearer|basic)\s{1,3})[\w.~+/=-]{8,}", re.IGNORECASE),
        re.compile(
            # A short number after "token" is the fencing token of a lease.
            r"(?P<kept>(?:password|passwd|passphrase|pwd|secret|token(?![\"']?\s{0,3}[:=]\s{0,3}\d{1,9}\b)|api[_-]?key|access[_-]?key|private[_-]?key|authorization)"
            r"[\"']?\s{0,3}[:=]\s{0,3}[\"']?)(?!\*\*\*)(?!(?:bearer|basic)\s)[^\s\"',;&}]+",
            re.IGNORECASE,
        ),
        re.compile(
            r"(?P<kept>--?(?:password|passwd|passphrase|secret|token|api-?key)\s{1,3})(?!-)(?!\*\*\*)\S+", re.IGNORECASE
        ),
        # mysql -pPASSWORD, but not -print, -p8080:80 and -p/tmp; curl -u name:password, but not -u 1000:1000.
        re.compile(r"(?P<kept>(?<!\S)-p)(?![\d:.]{1,30}(?!\S)|[a-z-]{1,30}(?!\S)|[./=])(?!\*\*\*)\S{6,}"),
        re.compile(rf"(?P<kept>\b(?:{_PASSWORD_COMMANDS})\s(?:[^\n;|&]{{0,200}}\s)?-p)(?!\*\*\*)[^\s\"']+"),
        # sshpass -p PASSWORD, redis-cli -a PASSWORD, openssl -passin pass:PASSWORD.
        re.compile(
            r"(?P<kept>\b(?:sshpass\s(?:[^\n;|&]{0,200}?\s)??-p|redis-cli\s(?:[^\n;|&]{0,200}?\s)??-a)\s{1,3}[\"']?)"
            r"[^\s\"']+"
        ),
        re.compile(r"(?P<kept>(?<!\S)-pass(?:in|out)?\s{1,3}[\"']?pass:)(?!\*\*\*)[^\s\"']+"),
        re.compile(
            r"(?P<kept>(?<!\S)(?:-u|--(?:proxy-)?user)(?:\s{1,3}|=)?[\"']?[^\s:/\"'=]{1,200}:)(?!\d+(?!\S))(?!\*\*\*)[^\s\"']+"
        ),
    )


def _mask_patterns(text: str) -> str:
    for pattern in _secret_patterns():
        text = pattern.sub(rf"\g<kept>{MASK}", text)
    return text


def _pattern_secrets(text: str) -> Iterator[str]:
    for pattern in _secret_patterns():
        matches = (match[0].removeprefix(match["kept"]) for match in pattern.finditer(text))
        yield from (secret for secret in matches if len(secret) >= MIN_PATTERN_CHARS)


def mask_store_url(url: str) -> str:
    """Mask every password in the URL of a store."""
    text = re.sub(r"(//[^:/?#@]*:).*@", r"\1***@", url)
    return re.sub(r"(password=)[^&\s]*", r"\1***", text, flags=re.IGNORECASE)
