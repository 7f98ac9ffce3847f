"""Text on terminals: sizes, colours, dumb terminals, long lists."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

import holdfast
from holdfast.cli.text import local_day, parse_when, table
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.quantities import local_times, stamp
from holdfast.errors import InvalidInput
from holdfast.output.printer import Line
from tests.support.processes import PATIENCE, wait_until
from tests.support.program import ROOT

pytestmark = pytest.mark.one_backend

#: The place of the local flags among the attributes of a terminal.
LOCAL_FLAGS = 3
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """``holdfast`` on its own pseudo-terminal."""

    def __init__(self, *arguments, url, columns=80, **environ):
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, columns))
        env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
        env |= {"HOLDFAST_URL": url, "TERM": "xterm", **environ}
        self.process = subprocess.Popen(
            ["setsid", "--ctty", sys.executable, "-m", "holdfast", *arguments],  # its keys can send signals
            cwd=ROOT,
            env=env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.text = ""

    def read(self):
        """New output; a closed terminal is not an error."""
        ready, _, _ = select.select([self._ours], [], [], 0.1)
        try:
            self.text += os.read(self._ours, 65536).decode(errors="replace") if ready else ""
        except OSError:
            return False
        return True

    def until(self, text):
        wait_until(lambda: self.read() and text in ESCAPE.sub("", self.text))

    def write(self, text):
        os.write(self._ours, text.encode())

    def attributes(self):
        return termios.tcgetattr(self._ours)

    def end(self, attributes=None):
        """Read all output, check the *attributes* that the terminal is left with, and return the exit code."""
        while self.read():
            pass
        assert attributes is None or self.attributes() == attributes
        os.close(self._ours)
        return self.process.wait(PATIENCE)


@pytest.fixture
def full(app):
    app.enqueue("mail", {"to": 1}, label="a label that is long, longer, and longer still, up to the edge of the world")
    app.control.hold(holdfast.Selector(kinds=("mail",)), actor="ada", note="\x1b]0;evil\x07 note\x00")
    return app


def test_a_terminal_has_colours(full, real_database):
    terminal = Terminal("ls", url=real_database.url)
    assert terminal.end() == 0
    assert "\x1b[33mheld\x1b[0m" in terminal.text


@pytest.mark.parametrize(
    ("arguments", "environ"), [(["--no-color"], {}), ([], {"NO_COLOR": "1"}), ([], {"TERM": "dumb"})], ids=str
)
def test_no_colours_where_they_are_disabled(full, real_database, arguments, environ):
    terminal = Terminal("ls", *arguments, url=real_database.url, **environ)
    assert terminal.end() == 0
    assert "\x1b" not in terminal.text
    assert "held" in terminal.text


@pytest.mark.parametrize("arguments", [["ls"], ["queue", "ls"], ["exit-codes"], ["top", "-n", "1"]], ids=" ".join)
def test_forty_columns_are_enough(full, real_database, arguments):
    """Lines are cut, not wrapped; nothing fails."""
    terminal = Terminal(*arguments, url=real_database.url, columns=40)
    assert terminal.end() == 0
    lines = ESCAPE.sub("", terminal.text).splitlines()
    assert max(map(len, lines)) <= 40
    assert "Traceback" not in terminal.text


def test_control_characters_are_escaped(full, real_database):
    """Escape sequences and NULs in labels and notes never reach the terminal."""
    terminal = Terminal("show", "1", url=real_database.url)
    assert terminal.end() == 0
    assert "\x1b]" not in terminal.text
    assert "\\x1b]0;evil\\x07 note" in terminal.text


@pytest.mark.parametrize("lease_duration", ["xterm", "dumb"])
def test_top_is_a_live_view(full, real_database, lease_duration):
    """It runs until Ctrl-C and restores the terminal; a dumb terminal gets one overview."""
    terminal = Terminal("top", "--every", "0.1", url=real_database.url, TERM=lease_duration)
    terminal.until("HELD")
    if lease_duration != "dumb":
        full.enqueue("mail", {"to": 2}, queue="a-new-one")
        terminal.until("a-new-one")
        terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 0
    assert "Traceback" not in terminal.text
    assert terminal.text.count("\x1b[?1049h") == terminal.text.count("\x1b[?1049l")


@pytest.mark.parametrize("way", ["q", "Q", "\x03", signal.SIGTERM], ids=str)
def test_a_key_leaves_top_and_the_terminal_is_as_before(full, real_database, way):
    """E8: without Enter; also after Ctrl-C and SIGTERM."""
    terminal = Terminal("top", "--every", "60", url=real_database.url)
    before = terminal.attributes()
    terminal.until("HELD")
    wait_until(lambda: not terminal.attributes()[LOCAL_FLAGS] & termios.ICANON)
    if isinstance(way, str):
        terminal.write(way)
    else:
        terminal.process.send_signal(way)
    assert terminal.end(before) == (0 if isinstance(way, str) else 128 + way)
    assert terminal.text.count("\x1b[?1049h") == terminal.text.count("\x1b[?1049l") == 1


def test_other_keys_do_not_leave_top(full, real_database):
    """A key updates the screen at once."""
    terminal = Terminal("top", "--every", "60", url=real_database.url)
    terminal.until("HELD")
    full.enqueue("mail", {"to": 2}, queue="a-new-one")
    terminal.write(" ")
    terminal.until("a-new-one")
    terminal.write("q")
    assert terminal.end() == 0


def test_a_wait_shows_its_progress(full, real_database):
    terminal = Terminal("wait", "1", url=real_database.url)
    terminal.until("0/1")
    full.control.cancel(holdfast.Selector(ids=(1,)), actor="ada")
    assert terminal.end() == 12
    assert "cancelled" in terminal.text


def test_a_run_of_a_batch_shows_a_bar(real_database):
    """B15: count, total, rate and remaining time; a dumb terminal gets lines."""
    line = ["batch", "run", "tests.support.programs.batch_units:plain", "--range", "10-60", "--rate", "20"]
    terminal = Terminal(*line, url=real_database.url, columns=120)
    assert terminal.end() == 0
    shown = ESCAPE.sub("", terminal.text)
    assert re.search(r"batch 1 .*\d+/51 .*\d/s .*\d:\d\d:\d\d left", shown), shown
    assert "batch 1: 51 of 51 done" in shown
    dumb = Terminal(*line, "--fresh", url=real_database.url, TERM="dumb")
    assert dumb.end() == 0
    assert re.search(r"\d+ of 51 units, .*/s", dumb.text)
    assert "\x1b" not in dumb.text


def test_a_table_is_painted_where_it_is_not_cut():
    assert [line.painted() for line in table(("STATE",), [["dead"], ["x"]])] == [
        "\x1b[1mSTATE\x1b[0m",
        "\x1b[31mdead\x1b[0m",
        "x",
    ]
    assert Line("plain").painted() == "plain"


#: Instants around the ends and the beginnings of summer time, in UTC, and what a clock there shows.
CLOCKS = [
    ("Europe/Berlin", "2030-03-31T00:59:59Z", "2030-03-31 01:59:59 CET"),
    ("Europe/Berlin", "2030-03-31T01:00:00Z", "2030-03-31 03:00:00 CEST"),
    ("Europe/Berlin", "2030-10-27T00:30:00Z", "2030-10-27 02:30:00 CEST"),
    ("Europe/Berlin", "2030-10-27T01:30:00Z", "2030-10-27 02:30:00 CET"),
    ("America/New_York", "2030-03-10T06:59:59Z", "2030-03-10 01:59:59 EST"),
    ("America/New_York", "2030-03-10T07:00:00Z", "2030-03-10 03:00:00 EDT"),
    ("America/New_York", "2030-11-03T05:30:00Z", "2030-11-03 01:30:00 EDT"),
    ("America/New_York", "2030-11-03T06:30:00Z", "2030-11-03 01:30:00 EST"),
    ("America/Sao_Paulo", "2030-01-01T00:00:00Z", "2029-12-31 21:00:00 -03"),
    ("UTC", "2030-01-01T00:00:00Z", "2030-01-01 00:00:00 UTC"),
]


@pytest.mark.parametrize(("place", "utc", "shown"), CLOCKS)
def test_a_time_is_local_and_can_be_passed_back(zone, place, utc, shown):
    """E8: with its zone, also in the hour that repeats; WHEN options read what lists show."""
    zone(place)
    timestamp = datetime.fromisoformat(utc)
    assert stamp(timestamp) == shown
    assert parse_when(shown) == timestamp
    assert datetime.fromisoformat(local_day(None, None, shown)) == timestamp


@pytest.mark.parametrize("text", ["2030-03-31 02:30:00 CET", "2030-07-01 12:00:00 CET", "2030-07-01 12:00:00 EST"])
def test_a_time_that_no_clock_here_shows_is_refused(zone, text):
    zone("Europe/Berlin")
    with pytest.raises(InvalidInput):
        parse_when(text)


def test_a_sentence_has_local_times(zone):
    """Views write UTC, in their two forms."""
    zone("Europe/Berlin")
    text = local_times("stopped since 2030-07-01 12:00:00 UTC, due since 2030-01-01T12:00:00Z")
    assert text == "stopped since 2030-07-01 14:00:00 CEST, due since 2030-01-01 13:00:00 CET"


def test_text_is_local_and_json_is_utc(full, real_database):
    """E8: the same job, shown in Berlin and as JSON."""
    environ = {**os.environ, "HOLDFAST_URL": real_database.url, "TZ": "Europe/Berlin"}
    line = [sys.executable, "-m", "holdfast", "show", "1"]
    text, document = (
        subprocess.run([*line, *more], env=environ, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for more in ([], ["-o", "json"])
    )
    created = json.loads(document)["data"]["job"]["created_at"]
    assert created.endswith("Z")
    local = datetime.fromisoformat(created).astimezone(ZoneInfo("Europe/Berlin"))
    assert f"enqueued  {local:%Y-%m-%d %H:%M:%S} {local.tzname()} by" in text


MANY = 50_000


@pytest.mark.slow
def test_a_long_list_takes_little_memory(app, real_database):
    """A streamed list of thousands of jobs takes no more memory than a short one."""
    small = _memory(real_database.url, "json", "-n", "10")
    app.store.jobs.enqueue_many([NewJob(kind="mail", payload='{"to": 1}') for _ in range(MANY)])
    for written in ("text", "json", "ndjson"):
        large = _memory(real_database.url, written, "--all")
        assert large - small < 8_000, "kilobytes"


def _memory(url, format_, *arguments):
    """The peak memory of one run, in kilobytes."""
    line = [sys.executable, "-m", "holdfast", "ls", *arguments, "-o", format_, "--url", url]
    code = (
        "import resource, subprocess, sys\n"
        "process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)\n"
        "lines = sum(1 for _ in process.stdout)\n"
        "assert process.wait() == 0\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *line], cwd=ROOT, capture_output=True, text=True, check=True)
    return int(done.stdout)
