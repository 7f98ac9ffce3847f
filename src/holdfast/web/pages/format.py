"""Formats of values on pages: numbers, durations, timestamps, states, untrusted text and ANSI colours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from markupsafe import Markup, escape

from holdfast.domain.jobs.selector import Count
from holdfast.domain.quantities import format_duration, split_times

#: Characters of a JSON value on a page.
MAX_JSON = 40_000

#: Invisible characters, and those that change the direction of text: controls, directions, separators, tags.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)

#: The symbol and the tone of a state. Each state has its own symbol, so that states differ without colour too.
STATES = {
    **dict.fromkeys(("held", "paused", "quiet"), ("‖", "warn")),
    **dict.fromkeys(("ready", "pending"), ("○", "idle")),
    **dict.fromkeys(("running", "resuming"), ("●", "busy")),
    **dict.fromkeys(("done", "fired", "ok"), ("✓", "good")),
    **dict.fromkeys(("dead", "failed", "failing", "missed", "expired", "problem"), ("✕", "bad")),
    **dict.fromkeys(("stopped", "stopping"), ("■", "warn")),
    "waiting": ("⋯", "idle"),
    "scheduled": ("◷", "idle"),
    "cancelled": ("⊘", "idle"),
    "skipped": ("↷", "idle"),
    "in_doubt": ("?", "warn"),
    "partial": ("◐", "warn"),
    "active": ("●", "good"),
    "over": ("◻", "idle"),
    "open": ("○", "good"),
    "full": ("◉", "warn"),
    "pausing": ("‖", "busy"),
    "cancelling": ("⊘", "busy"),
    "warning": ("!", "warn"),
    "gone": ("∅", "idle"),
}
#: An escape sequence: of colours (the group holds its codes), any other one, or a window title.
_SEQUENCE = re.compile(
    r"\x1b\[([0-9;:]{0,60})m|(?:\x1b\[|\x9b)[0-?]{0,60}[ -/]{0,20}[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b]{0,4000}(?:\x07|\x1b\\)?|\x1b(?![\[\]PX^_])[ -/]{0,5}[0-~]"
)
_STYLES = {1: "b", 2: "d", 3: "it", 4: "u"}
_STYLE_ENDS = {22: {"b", "d"}, 23: {"it"}, 24: {"u"}}


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
    """A number with separators of thousands; a small rate with at most two decimals."""
    if value is None:
        return ""
    if isinstance(value, int) or value >= 100:
        return f"{value:,.0f}"
    return f"{round(value, 2) or value:.3g}"  # a rate below 0.005 keeps its digits


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
    """A timestamp in UTC. The script of the page shows it by the clock of the browser."""
    return Markup("") if at is None else _time(at, f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC", shows="date")


def clock(at: datetime | None, now: datetime) -> Markup:
    """A short timestamp: without the date if it is today."""
    if at is None:
        return Markup("")
    there = at.astimezone(UTC)
    pattern = "%H:%M:%S UTC" if there.date() == now.astimezone(UTC).date() else "%d %b %H:%M:%S UTC"
    return _time(at, there.strftime(pattern), shows="clock")


def _time(at: datetime, text: str, *, shows: str = "age") -> Markup:
    there = at.astimezone(UTC)
    exact = f"{there:%Y-%m-%d %H:%M:%S}.{there.microsecond // 1000:03} UTC"
    element = Markup('<time datetime="{}" title="{}" data-shows="{}">{}</time>')
    return element.format(there.isoformat(), exact, shows, text)


def sentence(text: str | None, limit: int = 200) -> Markup:
    """The first line of a text of a view, with its times as elements."""
    pieces = split_times(first_line(text, limit))
    return Markup("").join(visible(piece) if isinstance(piece, str) else timestamp(piece) for piece in pieces)


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


def ansi(text: str, mark: str = "") -> Markup:
    """The text as HTML, escaped, with colours as spans. Occurrences of *mark* are highlighted."""
    return Markup("").join(_pieces(text, mark))


def plain(text: str) -> str:
    """The text without escape sequences."""
    return _SEQUENCE.sub("", text)


def _pieces(text: str, mark: str) -> Iterator[Markup]:
    style: set[str] = set()
    begin = 0
    for sequence in _SEQUENCE.finditer(text):
        yield _piece(text[begin : sequence.start()], style, mark)
        if sequence[1] is not None:
            style = _apply(style, sequence[1])
        begin = sequence.end()
    yield _piece(text[begin:], style, mark)


def _piece(text: str, style: set[str], mark: str) -> Markup:
    if not text:
        return Markup("")
    shown = _highlight(visible(text.replace("\r\n", "\n")), mark)
    return Markup('<span class="{}">{}</span>').format(" ".join(sorted(style)), shown) if style else shown


def _highlight(text: str, mark: str) -> Markup:
    if not mark:
        return escape(text)
    parts = re.split(f"({re.escape(mark)})", text, flags=re.IGNORECASE)
    return Markup("").join(
        Markup("<mark>{}</mark>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts)
    )


def _apply(style: set[str], codes: str) -> set[str]:
    """The style after a sequence. Colours beyond the basic eight become one of them, or none."""
    now = set(style)
    numbers = [int(code) if code else 0 for code in codes.replace(":", ";").split(";")][:16]
    while numbers:
        code = numbers.pop(0)
        if code == 0:
            now = set()
        elif code in _STYLES:
            now.add(_STYLES[code])
        elif code in _STYLE_ENDS:
            now -= _STYLE_ENDS[code]
        elif code in (38, 48):
            now = _with_colour(now, "f" if code == 38 else "g", _extended_colour(numbers))
        elif code in (39, 49):
            now = _with_colour(now, "f" if code == 39 else "g", None)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            now = _with_colour(now, "f", code % 10)
        elif 40 <= code <= 47 or 100 <= code <= 107:
            now = _with_colour(now, "g", code % 10)
    return now


def _extended_colour(numbers: list[int]) -> int | None:
    """Take the codes of an extended colour, ``5;n`` or ``2;r;g;b``, from *numbers*."""
    mode = numbers.pop(0) if numbers else 0
    taken = [numbers.pop(0) for _ in range(min(len(numbers), {5: 1, 2: 3}.get(mode, 0)))]
    return taken[0] % 8 if mode == 5 and taken and taken[0] < 16 else None


def _with_colour(style: set[str], letter: str, colour: int | None) -> set[str]:
    """The style with another colour; black is the default colour of the page."""
    kept = {name for name in style if not (name.startswith(letter) and name[1:].isdigit())}
    return kept | {f"{letter}{colour}"} if colour else kept
