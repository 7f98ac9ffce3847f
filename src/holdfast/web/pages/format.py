"""How things are written on pages: numbers, durations, moments, states, and texts that nobody has checked."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from markupsafe import Markup, escape

from holdfast.domain.durations import format_duration
from holdfast.store.jobs.queries import Count

#: What is shown of a JSON value, in characters.
LONGEST_JSON = 40_000

#: Signs that change how others are read, or that cannot be seen: controls, directions, separators, tags.
_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)

#: A state's sign and its tone. Signs differ, so that nobody has to tell colours apart.
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
    """The text with what cannot be seen, or turns its neighbours round, spelt out: ``⟨U+202E⟩``."""
    return _ODD.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text) if _ODD.search(text) else text


def finalized(value: Any) -> Any:
    """What becomes of every value in every template: nothing is written as nothing, and texts show what they hold."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return value


def verbatim(value: str | None) -> Markup:
    """A text for the value of a field: escaped, but with every sign it holds, since it is sent back."""
    return Markup(escape(value or ""))  # noqa: S704 - it is escaped right here


def number(value: float | None) -> str:
    """A count with its thousands set apart; a small rate with what tells it."""
    if value is None:
        return ""
    if isinstance(value, int) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def counted(count: Count) -> str:
    """A count that stopped at its cap says so."""
    return f"{count.count:,}+" if count.capped else f"{count.count:,}"


def size(count: int | None) -> str:
    """Bytes, in powers of 1024."""
    if count is None:
        return ""
    value, units = float(count), ["B", "KiB", "MiB", "GiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" or value >= 100 else f"{value:.1f} {units[0]}"


def duration(length: timedelta | float | None) -> str:
    """A length of time: short ones exactly, long ones in their largest units."""
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
    """How long ago a moment is, or how long until it; the moment itself stands in the title."""
    if at is None:
        return Markup("")
    away = now - at
    if abs(away) < timedelta(seconds=1):
        text = "now"
    else:
        text = f"{duration(away)} ago" if away > timedelta(0) else f"in {duration(-away)}"
    return _time(at, text)


def timestamp(at: datetime | None) -> Markup:
    """A moment by the clock, with its zone."""
    return Markup("") if at is None else _time(at, f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC")


def clock(at: datetime | None, now: datetime) -> Markup:
    """A moment in few words: the day only when it is another one."""
    if at is None:
        return Markup("")
    there = at.astimezone(UTC)
    pattern = "%H:%M:%S UTC" if there.date() == now.astimezone(UTC).date() else "%d %b %H:%M:%S UTC"
    return _time(at, there.strftime(pattern))


def _time(at: datetime, text: str) -> Markup:
    there = at.astimezone(UTC)
    exact = f"{there:%Y-%m-%d %H:%M:%S}.{there.microsecond // 1000:03} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(there.isoformat(), exact, text)


def state(word: str | None, *, text: str | None = None) -> Markup:
    """A state as a sign and a word."""
    if word is None:
        return Markup("")
    sign, tone = STATES.get(word, ("·", "idle"))
    shown = (text or word).replace("_", " ")
    moves = " moves" if word in ("running", "pausing", "cancelling", "resuming") else ""
    return Markup('<span class="state {}"><i class="sign{}" aria-hidden="true">{}</i>{}</span>').format(
        tone, moves, sign, visible(shown)
    )


def tone(word: str | None) -> str:
    """The tone of a state: good, bad, warn, busy, idle."""
    return STATES.get(word or "", ("", "idle"))[1]


def first_line(text: str | None, limit: int = 200) -> str:
    """How a text begins."""
    line = next((line for line in (text or "")[: 4 * limit].splitlines() if line.strip()), "")
    return line if len(line) <= limit else line[: limit - 1] + "…"


def pretty(value: Any) -> str:
    """A JSON value over several lines; a long one is cut."""
    text = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return text if len(text) <= LONGEST_JSON else f"{text[:LONGEST_JSON]}\n… ({len(text) - LONGEST_JSON:,} more)"


def compact(value: Any) -> str:
    """A JSON value on one line; a text as it is."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def as_value(value: Any) -> str:
    """A JSON value as the command line reads it back: a text as it is, unless it would be read as something else."""
    if not isinstance(value, str):
        return compact(value)
    try:
        msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value
    return msgspec.json.encode(value).decode()
