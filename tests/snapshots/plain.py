"""Texts as snapshots hold them: without what differs from run to run, and in a shape that is easy to compare."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

from holdfast import __version__

#: What differs from run to run or from host to host, and what stands in its place.
SUBSTITUTIONS = (
    # How long an answer took; which process runs a batch, and since when; how large the file is.
    (r'("duration_m?s": ?)[\d.]+', r"\g<1>0"),
    (r'((?:"|&#34;)(?:pid|started)(?:"|&#34;): ?)[\d.]+', r"\g<1>4711"),
    (r'((?:"|&#34;)boot(?:"|&#34;): ?(?:"|&#34;))[0-9a-f-]+', r"\g<1>boot"),
    (r"(holdfast_store_(?:age|latency)_seconds )[\d.e-]+", r"\g<1>0.001"),
    (r"pid:\[\d+\]", "pid:[1]"),
    (r'("(?:bytes|before|after)": ?)\d+', r"\g<1>1000"),
    (r"\b[\d.]+ (KB\b|GB are free)", r"1 \g<1>"),
    (r"\brun-host-1-[0-9a-f]{8}\b", "run-host-1-01234567"),
    (r'pid (?!4711 )\d+ on [^\n"<]*', "pid 1 on HOST (COMMAND)"),
    (r"\.holdfast-backup-\w{8}", ".holdfast-backup-12345678"),
    # What opens the door to a person.
    (r'(name="form_token" value=")[^"]+', r"\g<1>FORM-TOKEN"),
    (r"(holdfast_session=)[\w.-]+", r"\g<1>SESSION"),
    (r'(name="link" value=")[\w-]{20,}|(sign-in\?link=)[\w-]+', r"\g<1>\g<2>LINK"),
    (r"expires=[^;]+GMT", "expires=THEN"),
    # Where the next page of units begins: sealed with a secret of the store.
    (r'("next": ?"|/batches/\d+\?(?:\w+=\w+&amp;)*after=)[\w-]{22,}', r"\g<1>CURSOR"),
    # Where in a test file a handler failed.
    (r'File (\\?"|&#34;).+?\1, line \d+', r"File \1FILE\1, line N"),
    (r"\bPython 3\.\d+\.\d+", "Python 3.x"),
    (r"\bSQLite 3\.\d+\.\d+", "SQLite 3.x"),
    (r"(SQLite 3\.x), [\d.]+ MB", r"\g<1>, 1 MB"),
    (r'("version": ?"?|version |Holdfast |\.(?:css|js)\?)' + re.escape(__version__) + r"\b", r"\g<1>VERSION"),
)
VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}


def plain(text: str, home: Path) -> str:
    """The text with all substitutions."""
    text = text.replace(str(home), "/home/ada")
    for pattern, value in SUBSTITUTIONS:
        text = re.sub(pattern, value, text)
    return text


def pretty_json(text: str) -> str:
    """A document with sorted keys, one value a line; what is no JSON stays as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False)
    except ValueError:
        return text


def pretty_lines(text: str) -> str:
    """One document a line, each with sorted keys."""
    try:
        documents = [json.loads(line) for line in text.splitlines()]
    except ValueError:
        return text
    return "\n".join(json.dumps(each, sort_keys=True, ensure_ascii=False) for each in documents)


def pretty_html(text: str) -> str:
    """A page with one tag a line, indented by its depth."""
    page = _Page(convert_charrefs=False)
    page.feed(text)
    page.close()
    return "\n".join(page.lines)


def main_part(page: str) -> str:
    """The title and the main part of a page that :func:`pretty_html` made."""
    found = re.search(r"^ *<title>.*?</title>$", page, re.DOTALL | re.MULTILINE)
    main = re.search(r"^ *<main\b.*?</main>$", page, re.DOTALL | re.MULTILINE)
    return f"{found[0]}\n…\n{main[0]}" if found and main else page


class _Page(HTMLParser):
    """Collects the lines of a page. Text in ``pre`` keeps its spaces."""

    def __init__(self, *, convert_charrefs: bool) -> None:
        super().__init__(convert_charrefs=convert_charrefs)
        self.lines: list[str] = []
        self._open: list[str] = []
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._put(" ".join((self.get_starttag_text() or "").split()))
        if tag not in VOID and not (self.get_starttag_text() or "").endswith("/>"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._put(" ".join((self.get_starttag_text() or "").split()))

    def handle_endtag(self, tag: str) -> None:
        self._end_text()
        while self._open and self._open.pop() != tag:
            pass
        self._put(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_entityref(self, name: str) -> None:
        self._text += f"&{name};"

    def handle_charref(self, name: str) -> None:
        self._text += f"&#{name};"

    def handle_decl(self, decl: str) -> None:
        self._put(f"<!{decl}>")

    def handle_comment(self, data: str) -> None:
        self._put(f"<!--{data}-->")

    def close(self) -> None:
        super().close()
        self._end_text()

    def _put(self, line: str) -> None:
        self._end_text()
        self.lines.append("  " * len(self._open) + line)

    def _end_text(self) -> None:
        text, self._text = self._text, ""
        lines = text.splitlines() if "pre" in self._open else [" ".join(text.split())]
        self.lines += ["  " * len(self._open) + line.rstrip() for line in lines if line.strip()]
