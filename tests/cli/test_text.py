"""Text on terminals: sizes, colours, dumb terminals, long lists."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios

import pytest

import holdfast
from holdfast.cli.text import table
from holdfast.domain.jobs.new_job import NewJob
from holdfast.output.printer import Line
from tests.support.processes import PATIENCE, wait_until
from tests.support.program import ROOT

pytestmark = pytest.mark.one_backend

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """``holdfast`` on its own pseudo-terminal."""

    def __init__(self, *arguments, url, columns=80, **environ):
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, columns))
        env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
        env |= {"HOLDFAST_URL": url, "TERM": "xterm", **environ}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *arguments],
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

    def end(self):
        while self.read():
            pass
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
