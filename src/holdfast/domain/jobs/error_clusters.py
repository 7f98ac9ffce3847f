"""Error clusters: errors that differ only in numbers, names and times."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec import Struct

from holdfast.domain.access.masking import MASK

#: In characters; the rest of an error does not affect its cluster.
MAX_PATTERN_CHARS = 300

#: Replacements of variable text, applied in order. No pattern backtracks: the time is linear in the length.
_REPLACEMENTS = (
    (re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"<>]+", re.IGNORECASE), "<url>"),
    (re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"), "<address>"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?"), "<time>"),
    (re.compile(r"\"[^\"]{0,200}\"|(?<![\w])'[^']{0,200}'(?!\w)|`[^`]{0,200}`"), "<text>"),
    (re.compile(r"(?<![\w<])(?:~|\.{1,2})?(?:/[\w.@+-]+){2,}/?"), "<path>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<n>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"(?:(?<![A-Za-z_])[-+])?\d+(?:[.,:]\d+)*"), "<n>"),
)
_SPACE = re.compile(r"\s+")
_PLACEHOLDER = re.compile(rf"<(?:url|address|id|time|text|path|n)>|{re.escape(MASK)}")


class SeenError(Struct, frozen=True):
    """One error of the kind *kind*. *name* is the id of a job, or the key of a unit."""

    name: Any
    kind: str
    text: str
    at: datetime | None = None


class Cluster(Struct, frozen=True, kw_only=True):
    """Errors of one kind with the same pattern. *key* identifies them; *newest* and *sample* are of the last one."""

    key: str
    kind: str
    pattern: str
    count: int
    first: datetime | None
    last: datetime | None
    newest: Any
    sample: str


def pattern_of(error: str) -> str:
    """The first line of an error with numbers, ids, quoted words, paths and times replaced."""
    line = next((line for line in error[: 4 * MAX_PATTERN_CHARS].splitlines() if line.strip()), "")[:MAX_PATTERN_CHARS]
    for pattern, replacement in _REPLACEMENTS:
        line = pattern.sub(replacement, line)
    return _SPACE.sub(" ", line).strip()[:MAX_PATTERN_CHARS] or "no error text"


def cluster_key(kind: str, error: str) -> str:
    """The key of the cluster of an error; the same on every host."""
    return hashlib.sha256(f"{kind}\n{pattern_of(error)}".encode()).hexdigest()[:12]


def common_text(cluster: Cluster) -> str:
    """The longest text that every error of a cluster contains; empty if there is none."""
    pieces = (piece.strip(" -") for piece in _PLACEHOLDER.split(cluster.pattern))
    return max((piece for piece in pieces if piece in cluster.sample), key=len, default="")


def cluster_errors(errors: Iterable[SeenError]) -> list[Cluster]:
    """Group errors, which must come newest first; the largest cluster is the first."""
    groups: dict[str, list[SeenError]] = {}
    for seen in errors:
        groups.setdefault(cluster_key(seen.kind, seen.text), []).append(seen)
    clusters = [_cluster(key, group) for key, group in groups.items()]
    return sorted(clusters, key=lambda cluster: (-cluster.count, cluster.kind, cluster.pattern))


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
