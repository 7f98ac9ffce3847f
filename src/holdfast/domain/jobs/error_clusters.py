"""Errors that are the same but for their numbers and names: clusters."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

#: No more of an error is looked at.
MAX_PATTERN_CHARS = 300

#: What differs from one error to the next, in the order in which it is taken out. None of them looks back: a long line
#: takes as long as it is long.
_VARIES = (
    (re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"<>]+", re.IGNORECASE), "<url>"),
    (re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"), "<address>"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?"), "<time>"),
    (re.compile(r"\"[^\"]{0,200}\"|(?<![\w])'[^']{0,200}'(?!\w)|`[^`]{0,200}`"), "<text>"),
    (re.compile(r"(?<![\w<])(?:~|\.{1,2})?(?:/[\w.@+-]+){2,}/?"), "<path>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<n>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"(?<![A-Za-z_<])[-+]?\d+(?:[.,:]\d+)*"), "<n>"),
)
_SPACE = re.compile(r"\s+")


class SeenError(Struct, frozen=True):
    """One error: where it happened, and when."""

    name: str
    kind: str
    text: str
    at: datetime | None = None


class Cluster(Struct, frozen=True, kw_only=True):
    """Errors of one kind that look alike. *key* finds them again; *newest* and *sample* are of the last one."""

    key: str
    kind: str
    pattern: str
    count: int
    first: datetime | None
    last: datetime | None
    newest: str
    sample: str


def pattern_of(error: str) -> str:
    """The first line of an error without what varies: numbers, ids, quoted words, paths, moments."""
    line = next((line for line in error[: 4 * MAX_PATTERN_CHARS].splitlines() if line.strip()), "")[:MAX_PATTERN_CHARS]
    for pattern, word in _VARIES:
        line = pattern.sub(word, line)
    return _SPACE.sub(" ", line).strip()[:MAX_PATTERN_CHARS] or "no error text"


def cluster_key(kind: str, error: str) -> str:
    """A short word for the cluster that an error of this kind belongs to; the same on every host."""
    return hashlib.sha256(f"{kind}\n{pattern_of(error)}".encode()).hexdigest()[:12]


def cluster_errors(errors: Iterable[SeenError]) -> list[Cluster]:
    """The clusters of these errors, given the newest first; the largest cluster comes first."""
    groups: dict[str, list[SeenError]] = {}
    for seen in errors:
        groups.setdefault(cluster_key(seen.kind, seen.text), []).append(seen)
    found = [_cluster(key, group) for key, group in groups.items()]
    return sorted(found, key=lambda cluster: (-cluster.count, cluster.kind, cluster.pattern))


def _cluster(key: str, group: list[SeenError]) -> Cluster:
    times = [seen.at for seen in group if seen.at is not None]
    return Cluster(
        key=key,
        kind=group[0].kind,
        pattern=pattern_of(group[0].text),
        count=len(group),
        first=min(times, default=None),
        last=max(times, default=None),
        newest=group[0].name,
        sample=group[0].text.partition("\n")[0][:MAX_PATTERN_CHARS],
    )
