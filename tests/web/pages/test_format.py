"""Formats: untrusted text is harmless, and all of it is visible."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from markupsafe import Markup

from holdfast.domain.batches.batch import BatchState
from holdfast.domain.batches.unit import UnitState
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.selector import Count
from holdfast.domain.schedules.definition import Condition
from holdfast.options import parse_arguments
from holdfast.web.pages import format as formats
from holdfast.web.pages.format import ansi, plain
from holdfast.web.request import build_url, environment

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (None, ""),
        (0, "0 s"),
        (0.0004, "<1 ms"),
        (0.25, "250 ms"),
        (3.44, "3.4 s"),
        (45, "45 s"),
        (timedelta(minutes=5), "5 min"),
        (timedelta(hours=2, minutes=5), "2 h 5 min"),
        (timedelta(days=4), "4 d"),
        (timedelta(seconds=-90), "-90 s"),
        (1e300, "1157407 d"),
    ],
)
def test_duration(length, text):
    """Short durations exactly, long ones in their largest units, without a limit."""
    assert formats.duration(length) == text


@pytest.mark.parametrize(
    ("count", "text"), [(None, ""), (0, "0 B"), (1023, "1023 B"), (2048, "2.0 KiB"), (5 * 2**30, "5.0 GiB"), (2**60, "1073741824 GiB")]
)  # fmt: skip
def test_size(count, text):
    """Bytes in units of 1024."""
    assert formats.size(count) == text


def test_numbers():
    """Separators of thousands; a plus sign at the cap."""
    assert formats.number(1234567) == "1,234,567"
    assert formats.number(1 / 15) == "0.07"
    assert formats.number(0.001) == "0.001"
    assert formats.number(None) == ""
    assert formats.counted(Count(1000, True)) == "1,000+"
    assert formats.counted(Count(12, False)) == "12"


def test_timestamps():
    """An age has its timestamp; a timestamp has its zone, and its date unless it is today."""
    assert ">3 min ago<" in formats.age(NOW - timedelta(minutes=3), NOW)
    assert 'datetime="2030-01-01T11:57:00+00:00"' in formats.age(NOW - timedelta(minutes=3), NOW)
    assert ">in 45 s<" in formats.age(NOW + timedelta(seconds=45), NOW)
    assert ">now<" in formats.age(NOW, NOW)
    assert formats.age(None, NOW) == ""
    assert "2030-01-01 12:00:00 UTC" in formats.timestamp(NOW)
    assert ">12:00:00 UTC<" in formats.clock(NOW, NOW)
    assert ">31 Dec 12:00:00 UTC<" in formats.clock(NOW - timedelta(days=1), NOW)


def test_sentences():
    """Times become elements, which the script shows by the clock of the browser. The rest is escaped."""
    text = formats.sentence("<b> is late since 2030-01-01 12:00:00 UTC\u202e\nsecond line")
    assert text == f"&lt;b&gt; is late since {formats.timestamp(NOW)}⟨U+202E⟩"
    assert 'data-shows="date"' in text
    assert formats.sentence(None) == ""


@pytest.mark.parametrize("word", [*State, *UnitState, *BatchState, *Condition])
def test_state(word):
    """Every state has a symbol next to its text, so that colour is not needed."""
    symbol, _ = formats.STATES[word]
    assert f">{symbol}</i>{word.replace('_', ' ')}<" in formats.state(word)


@pytest.mark.parametrize("states", [State, UnitState, BatchState, Condition])
def test_signs_differ(states):
    """No two states of one noun have the same symbol."""
    symbols = [formats.STATES[word][0] for word in states]
    assert len(set(symbols)) == len(symbols)


def test_state_of_somebody_elses():
    """An unknown state is shown as text."""
    assert "&lt;script&gt;" in formats.state("<script>")


@pytest.mark.parametrize(
    "character",
    ["\u202e", "\u2066", "\u200b", "\ufeff", "\x07", "\x1b", "\x9b", "\x00", "\u2028", "\U000e0041", "\ud800"],
)
def test_invisible_characters(character):
    """Invisible characters and direction marks are replaced by their code points."""
    assert formats.visible(f"a{character}b") == f"a⟨U+{ord(character):04X}⟩b"


def test_visible_characters():
    """Lines, tabs and text of any language stay unchanged."""
    for text in ("a\n\tb", "ünïcödé 日本語 שלום", "👩‍👩‍👧", "plain"):
        assert formats.visible(text) == text


def test_every_value_of_a_template():
    """None is empty, HTML is escaped, invisible characters are shown, and our own markup stays."""
    template = environment().from_string('<p title="{{ text }}">{{ text }}|{{ nothing }}|{{ ours }}</p>')
    shown = template.render(text='"><script>\u202e', nothing=None, ours=Markup("<b>x</b>"))
    assert shown == (
        '<p title="&#34;&gt;&lt;script&gt;⟨U+202E⟩">&#34;&gt;&lt;script&gt;⟨U+202E⟩||<b>x</b></p>'
    )  # fmt: skip


def test_verbatim():
    """The value of a field keeps every character and cannot leave its attribute."""
    assert formats.verbatim('a\u202e"<') == "a\u202e&#34;&lt;"


def test_json():
    """JSON on several lines, cut when it is long; other text unchanged."""
    assert formats.pretty({"a": [1]}) == '{\n  "a": [\n    1\n  ]\n}'
    assert formats.pretty("not json") == "not json"
    assert formats.pretty("x" * 50_000).endswith("… (10,000 more)")
    assert formats.compact([1, "a"]) == '[1,"a"]'


def test_first_line():
    """The first line that is not empty."""
    assert formats.first_line("\n\n  one\ntwo") == "  one"
    assert formats.first_line("x" * 300) == "x" * 199 + "…"
    assert formats.first_line(None) == ""


# -- colours of logs ---------------------------------------------------------------------------


def test_colours():
    """Colours become spans that end where the sequence ends them."""
    assert ansi("\x1b[31mred\x1b[0m plain") == '<span class="f1">red</span> plain'
    assert ansi("\x1b[1;32mok\x1b[22m still") == '<span class="b f2">ok</span><span class="f2"> still</span>'
    assert ansi("\x1b[38;5;1mred\x1b[39m x") == '<span class="f1">red</span> x'
    assert ansi("\x1b[38;2;1;2;3mrgb\x1b[m") == "rgb"


@pytest.mark.parametrize(
    "sequence",
    [
        "\x1b]0;title\x07",
        "\x1b]8;;http://evil\x1b\\",
        "\x1b[2J",
        "\x1b[1000D",
        "\x9b5n",
        "\x1bc",
        "\x1bP1;2q\x1b\\",
        "\x1b(B",
    ],
)
def test_escape_sequences_are_removed(sequence):
    """Titles, links, cursor movements and erasures."""
    assert ansi(f"a{sequence}b") == "ab"
    assert plain(f"a{sequence}b") == "ab"


def test_text_of_commands_is_escaped():
    """Also within colours and highlights."""
    assert ansi("\x1b[31m<script>\x1b[0m") == '<span class="f1">&lt;script&gt;</span>'
    assert ansi("a <b> A", "a") == "<mark>a</mark> &lt;b&gt; <mark>A</mark>"
    assert ansi("x<y", "<") == "x<mark>&lt;</mark>y"
    assert ansi("bell\x07 \u202e") == "bell⟨U+0007⟩ ⟨U+202E⟩"
    assert ansi("\x1b[") == "⟨U+001B⟩["


def test_long_sequences_take_no_time():
    """Incomplete sequences take linear time."""
    assert len(ansi("\x1b[" * 50_000)) > 0
    assert len(ansi("\x1b]" + "x" * 200_000)) > 0


def test_addresses():
    """Names are query parameters, with any character; empty parameters are left out."""
    assert build_url("/base", "schedule", {"name": "a/../b\n&#?"}) == "/base/schedule?name=a%2F..%2Fb%0A%26%23%3F"
    assert build_url("", "jobs", {"filter": "", "state": None}) == "/jobs"
    assert build_url("", "", {}) == "/"


@pytest.mark.parametrize("value", ["5", "true", "plain", "a b", "", '"5"', "{", "it's", 5, [1, "2"], None])
def test_copied_values_parse_again(value):
    """A string that looks like a number stays a string."""
    assert parse_arguments([f"name={formats.as_value(value)}"]) == {"name": value}
