"""Formats of values on pages: numbers, durations, timestamps, states and untrusted text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from markupsafe import Markup, escape

from holdfast.domain.quantities import format_duration
from holdfast.store.jobs.queries import Count

#: Characters of a JSON value on a page.
MAX_JSON = 40_000

#: Invisible characters, and those that change the direction of text: controls, directions, separators, tags.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)

#: The symbol and the tone of a state. Symbols differ, so that colour is not needed to tell them apart.
STATES = {
    "held": ("‖", "warn"),
    "waiting": ("⋯", "idle"),
    "scheduled": ("◷", "idle"),
    "ready": ("○", "idle"),
    "running": ("●", "busy"),
    "done": ("✓", "good"),
    "dead": ("✕", "bad"),
    "cancelled": ("⊘", "idle"),
    "pending": ("○", "idle"),
    "failed": ("✕", "bad"),
    "skipped": ("↷", "idle"),
    "in_doubt": ("?", "warn"),
    "paused": ("‖", "warn"),
    "stopped": ("■", "warn"),
    "partial": ("◐", "warn"),
    "active": ("●", "good"),
    "failing": ("✕", "bad"),
    "over": ("◻", "idle"),
    "fired": ("✓", "good"),
    "missed": ("✕", "bad"),
    "open": ("○", "good"),
    "full": ("◉", "warn"),
    "quiet": ("‖", "warn"),
    "stopping": ("■", "warn"),
    "pausing": ("‖", "busy"),
    "cancelling": ("⊘", "busy"),
    "resuming": ("●", "busy"),
    "expired": ("✕", "bad"),
    "ok": ("✓", "good"),
    "warning": ("!", "warn"),
    "problem": ("✕", "bad"),
    "gone": ("∅", "idle"),
}


def visible(text: str) -> str:
    """Replace invisible characters and direction marks by their code points: ``⟨U+202E⟩``."""
    return _INVISIBLE.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)


def finalize(value: Any) -> Any:
    """Convert each value that a template prints: None is empty, and text shows its invisible characters."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return value


def verbatim(value: str | None) -> Markup:
    """The value of a form field: escaped, but otherwise unchanged, since the form sends it back."""
    return Markup(escape(value or ""))  # noqa: S704 - escaped here


def number(value: float | None) -> str:
    """A number with separators of thousands; a small rate with three digits."""
    if value is None:
        return ""
    if isinstance(value, int) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def counted(count: Count) -> str:
    """A count; a plus sign marks one that stopped at its cap."""
    return f"{count.count:,}+" if count.capped else f"{count.count:,}"


def size(count: int | None) -> str:
    """A number of bytes in units of 1024."""
    if count is None:
        return ""
    value, units = float(count), ["B", "KiB", "MiB", "GiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" or value >= 100 else f"{value:.1f} {units[0]}"


def duration(length: timedelta | float | None) -> str:
    """A duration: short ones exactly, long ones in their largest units."""
    if length is None:
        return ""
    seconds = length.total_seconds() if isinstance(length, timedelta) else float(length)
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds == 0:
        return "0 s"
    if seconds < 0.001:
        return "<1 ms"
    if seconds < 1:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f} s"
    return format_duration(timedelta(seconds=min(seconds, 1e11)))


def age(at: datetime | None, now: datetime) -> Markup:
    """The time since a timestamp, or until it. The title has the timestamp itself."""
    if at is None:
        return Markup("")
    away = now - at
    if abs(away) < timedelta(seconds=1):
        text = "now"
    else:
        text = f"{duration(away)} ago" if away > timedelta(0) else f"in {duration(-away)}"
    return _time(at, text)


def timestamp(at: datetime | None) -> Markup:
    """A timestamp with its zone."""
    return Markup("") if at is None else _time(at, f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC")


def clock(at: datetime | None, now: datetime) -> Markup:
    """A short timestamp: without the date if it is today."""
    if at is None:
        return Markup("")
    there = at.astimezone(UTC)
    pattern = "%H:%M:%S UTC" if there.date() == now.astimezone(UTC).date() else "%d %b %H:%M:%S UTC"
    return _time(at, there.strftime(pattern))


def _time(at: datetime, text: str) -> Markup:
    there = at.astimezone(UTC)
    exact = f"{there:%Y-%m-%d %H:%M:%S}.{there.microsecond // 1000:03} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(there.isoformat(), exact, text)


def state(name: str | None, *, text: str | None = None) -> Markup:
    """A state as a symbol and a text."""
    if name is None:
        return Markup("")
    symbol, tone = STATES.get(name, ("·", "idle"))
    shown = (text or name).replace("_", " ")
    moves = " moves" if name in ("running", "pausing", "cancelling", "resuming") else ""
    return Markup('<span class="state {}"><i class="sign{}" aria-hidden="true">{}</i>{}</span>').format(
        tone, moves, symbol, visible(shown)
    )


def tone(name: str | None) -> str:
    """The tone of a state: good, bad, warn, busy, idle."""
    return STATES.get(name or "", ("", "idle"))[1]


def first_line(text: str | None, limit: int = 200) -> str:
    """The first line of a text that is not empty; a long one is cut."""
    line = next((line for line in (text or "")[: 4 * limit].splitlines() if line.strip()), "")
    return line if len(line) <= limit else line[: limit - 1] + "…"


def pretty(value: Any) -> str:
    """A JSON value on several lines; a long one is cut."""
    text = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return text if len(text) <= MAX_JSON else f"{text[:MAX_JSON]}\n… ({len(text) - MAX_JSON:,} more)"


def compact(value: Any) -> str:
    """A JSON value on one line; a string unchanged."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def as_value(value: Any) -> str:
    """A JSON value as the command line parses it: a string is quoted only if it would parse as something else."""
    if not isinstance(value, str):
        return compact(value)
    try:
        msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value
    return msgspec.json.encode(value).decode()
