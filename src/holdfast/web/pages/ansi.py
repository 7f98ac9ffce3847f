"""ANSI colours of logs as HTML spans. All other escape sequences are removed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markupsafe import Markup, escape

from holdfast.web.pages.format import visible

#: An escape sequence: of colours (the group holds its codes), any other one, or a window title.
_SEQUENCE = re.compile(
    r"\x1b\[([0-9;:]{0,60})m|(?:\x1b\[|\x9b)[0-?]{0,60}[ -/]{0,20}[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b]{0,4000}(?:\x07|\x1b\\)?|\x1b(?![\[\]PX^_])[ -/]{0,5}[0-~]"
)
_STYLES = {1: "b", 2: "d", 3: "it", 4: "u"}
_STYLE_ENDS = {22: {"b", "d"}, 23: {"it"}, 24: {"u"}}


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
