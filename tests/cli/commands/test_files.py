"""``files append`` and ``files write``."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("here")


def files(*arguments, data=b""):
    line = [sys.executable, "-m", "holdfast", "files", *arguments]
    return subprocess.run(line, input=data, capture_output=True, timeout=60, check=False)


def test_lines_are_appended(here):
    """E9.5: an argument is one line; stdin is appended as one block, bytes as they are."""
    assert files("append", "log", "one").returncode == 0
    assert files("append", "log", data=b"two\xff\nthree").returncode == 0
    assert files("append", "log", data=b"").returncode == 0
    assert (here / "log").read_bytes() == b"one\ntwo\xff\nthree\n"
    assert files("append", "no/such/folder", "x").returncode == 2


def test_many_shells_append_whole_lines(here):
    """E9.5: lines of several programs never mix."""
    processes = [
        subprocess.Popen([sys.executable, "-m", "holdfast", "files", "append", "log", letter * 100_000])
        for letter in "abcd"
    ]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert sorted((here / "log").read_text().split()) == [letter * 100_000 for letter in "abcd"]


def test_a_file_is_replaced_at_the_end_of_stdin(here):
    """E9.5: until then, and without any input, the old content stays."""
    (here / "out").write_text("old")
    line = [sys.executable, "-m", "holdfast", "files", "write", "out"]
    with subprocess.Popen(line, stdin=subprocess.PIPE) as process:
        process.stdin.write(b"new" * 1_000_000)
        process.stdin.flush()
        assert (here / "out").read_text() == "old"
    assert (process.returncode, (here / "out").read_bytes() == b"new" * 1_000_000) == (0, True)
    empty = files("write", "out")
    assert (empty.returncode, b"--allow-empty" in empty.stderr) == (2, True)
    assert (here / "out").stat().st_size == 3_000_000
    assert files("write", "out", "--allow-empty").returncode == 0
    assert (here / "out").read_bytes() == b""
    assert [file.name for file in here.iterdir()] == ["out"]
