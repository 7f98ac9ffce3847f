"""Logs: whole lines, ranges and searches, with secrets masked."""

from __future__ import annotations

import tracemalloc

import pytest

from holdfast.admin.views import logs
from holdfast.admin.views.logs import JobLogs, LogMatches, mask_lines, read_log, search_log
from tests.support.jobs import put

SECRET = "hunter22-and-more"


def test_no_cut_of_a_log_shows_half_a_secret(tmp_path):
    """Every range begins and ends with a whole line."""
    log = tmp_path / "1-1.log"
    log.write_text(f"one\nthe key is {SECRET} indeed\nlast\n")
    halves = [SECRET[:8], SECRET[-8:]]
    for begin in range(log.stat().st_size + 2):
        for window in (5, 20, 40, 4096):
            part = read_log(log, [SECRET], begin=begin, window=window)
            assert not any(half in line for line in part.lines for half in halves), (begin, window, part)


def test_a_log_is_read_to_its_end_in_parts(tmp_path):
    """Each part continues after the previous one; no line is lost or repeated."""
    log = tmp_path / "1-1.log"
    lines = [f"line {n} " + "x" * n for n in range(50)]
    log.write_text("\n".join(lines) + "\n")
    read, part = [], read_log(log, [], begin=0, window=100)
    while part.end < part.size:
        read += part.lines
        part = read_log(log, [], begin=part.end, window=100)
    assert read + part.lines == lines
    assert read_log(log, [], window=120).lines == lines[-2:]


def test_a_line_longer_than_a_part_is_passed_over(tmp_path):
    log = tmp_path / "1-1.log"
    log.write_text("first\n" + "x" * 1000 + "\nlast\n")
    lines, part = [], read_log(log, [], begin=0, window=64)
    while part.end < part.size:
        lines += part.lines
        part = read_log(log, [], begin=part.end, window=64)
    assert lines + part.lines == ["first", "last"]


def test_an_incomplete_line_is_shown_when_the_command_has_finished(tmp_path):
    log = tmp_path / "1-1.log"
    log.write_text("whole\nhalf")
    assert read_log(log, []).lines == ["whole"]
    assert read_log(log, [], finished=True).lines == ["whole", "half"]
    assert read_log(log, [], begin=99).lines == []


def test_a_search_does_not_find_secrets(tmp_path):
    """A secret cannot be guessed letter by letter. The last matches come with their line numbers."""
    log = tmp_path / "1-1.log"
    log.write_text(f"a\nkey {SECRET}\nb KEY\n")
    assert search_log(log, [SECRET], "hunter").lines == []
    assert search_log(log, [SECRET], "key").lines == [(2, "key ***"), (3, "b KEY")]
    assert search_log(log, [SECRET], "key", limit=1).lines == [(3, "b KEY")]


def test_a_secret_of_several_lines_is_masked():
    key = "-----BEGIN-----\nabcdef\n-----END-----"
    assert mask_lines(f"x\n{key}\ny", [key]) == "x\n***\n***\n***\ny"


def test_only_commands_have_logs(store, tmp_path):
    from holdfast.errors import InvalidInput, NotFound

    with pytest.raises(InvalidInput, match="only commands have a log"):
        JobLogs(store, tmp_path, put(store)).read(1)
    command = put(store, "command", payload='{"argv": ["true"], "cwd": "/"}')
    with pytest.raises(NotFound):
        JobLogs(store, tmp_path, command).read(1)


def test_a_search_holds_no_long_line(tmp_path):
    """E6.3: a progress bar may write 32 MiB without the end of a line. Its first piece is searched, then the next line."""
    log = tmp_path / "log"
    log.write_bytes(b"begin" + b"\r50%" * 8 * 1024 * 1024 + b"hidden\nlast begin\n")
    tracemalloc.start()
    try:
        found = search_log(log, [], "begin", seconds=600)
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()
    assert [number for number, _ in found.lines] == [1, 2]
    assert found.complete
    assert search_log(log, [], "hidden", seconds=600).lines == []


def test_a_search_ends_in_time(tmp_path, monkeypatch):
    """E6.3: it says that it has not seen everything."""
    log = tmp_path / "log"
    log.write_text("one\ntwo\n")
    assert search_log(log, [], "one", seconds=0) == LogMatches([], complete=False)
    monkeypatch.setattr(logs, "MAX_SEARCH_BYTES", 4)
    assert search_log(log, [], "o", seconds=600) == LogMatches([(1, "one")], complete=False)
