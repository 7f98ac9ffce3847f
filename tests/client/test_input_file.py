"""Input files: every source, line end and encoding gives the same lines, and what is wrong names its line."""

from __future__ import annotations

import io
import os
import sys
import threading
from contextlib import ExitStack

import pytest

import holdfast
from holdfast import options
from holdfast.client.input_file import InputFile
from holdfast.errors import InputFailed, InvalidInput

BOM = b"\xef\xbb\xbf"
#: What a file contains, and its lines.
FORMS = {
    "plain": (b"ada\nbob\n", ["ada", "bob"]),
    "no last end": (b"ada\nbob", ["ada", "bob"]),
    "mark": (BOM + b"ada\nbob\n", ["ada", "bob"]),
    "mark and CRLF": (BOM + b"ada\r\nbob\r\n", ["ada", "bob"]),
    "CR": (b"ada\rbob\r", ["ada", "bob"]),
    "blank line": (b"ada\n\nbob\n", ["ada", "", "bob"]),
    "only a mark": (BOM, [""]),
    "empty": (b"", []),
    "line separator": ("a\u2028da\nbob\n".encode(), ["a\u2028da", "bob"]),
    "mark in the middle": (b"ada\n" + BOM + b"bob\n", ["ada", "\ufeffbob"]),
    "umlauts": ("ädä\nböb\n".encode(), ["ädä", "böb"]),
}
#: What is not UTF-8, and the error.
BAD = {
    "latin-1": (b"ada\nb\xf6b\n", "line 2: byte 0xf6 is not UTF-8"),
    "UTF-16": (b"\xff\xfea\0d\0a\0\n\0", "line 1: byte 0xff is not UTF-8"),
}


def _pipe(data):
    reader, writer = os.pipe()

    def feed():
        with os.fdopen(writer, "wb") as end:
            end.write(data)

    threading.Thread(target=feed, daemon=True).start()
    return reader


@pytest.fixture(params=["file", "link", "fifo", "descriptor", "stdin"])
def source(request, tmp_path, monkeypatch):
    """Opens data from each kind of source; returns its name on a command line."""
    stack, path = ExitStack(), tmp_path / "input"

    def make(data):
        match request.param:
            case "file":
                path.write_bytes(data)
            case "link":
                (tmp_path / "target").write_bytes(data)
                path.symlink_to(tmp_path / "target")
            case "fifo":
                os.mkfifo(path)
                threading.Thread(target=path.write_bytes, args=(data,), daemon=True).start()
            case "descriptor":
                stack.callback(os.close, reader := _pipe(data))
                return f"/dev/fd/{reader}"
            case "stdin":
                stack.enter_context(stream := io.TextIOWrapper(os.fdopen(_pipe(data), "rb"), encoding="latin-1"))
                monkeypatch.setattr(sys, "stdin", stream)
                return "-"
        return str(path)

    with stack:
        yield make


@pytest.mark.parametrize("form", FORMS)
def test_the_lines_are_the_same_from_every_source(source, form):
    """D9, D10: a byte order mark and the line ends are no part of the lines."""
    data, expected = FORMS[form]
    lines = [*InputFile(source(data)).lines()]
    assert [line for _, line in lines] == expected, "B1 is broken"
    assert [number for number, _ in lines] == [*range(1, len(expected) + 1)]


@pytest.mark.parametrize("form", BAD)
def test_a_byte_that_is_not_utf_8_is_told_with_its_line(source, form):
    """D10: the message names the file and the line; for UTF-16 the hint says how to convert it."""
    data, text = BAD[form]
    name = source(data)
    shown, file = "stdin" if name == "-" else name, InputFile(name)
    for read in [InputFile.text] if file.reads_once else [InputFile.text, lambda file: [*file.lines()]]:
        with pytest.raises(InvalidInput, match=f"{shown}, {text}") as refused:
            read(file)
        assert ("iconv -f UTF-16" in refused.value.hint) is (form == "UTF-16")


def test_a_file_can_be_read_again_and_a_pipe_cannot(source):
    name = source(b"1\n2\n")
    file = InputFile(name)
    first = [*file.lines()]
    assert len(first) == 2
    assert [*file.lines()] == ([] if file.reads_once else first)


def test_what_is_no_file_is_refused_at_once(tmp_path):
    """D10: before a batch begins, and in other words than a missing file."""
    (tmp_path / "secret").write_text("1")
    (tmp_path / "secret").chmod(0)
    expected = {"missing": "there is no file", ".": "is a directory", "secret/below": "cannot be read: Not a directory"}
    if os.geteuid():
        expected["secret"] = "cannot be read: Permission denied"
    for name, text in expected.items():
        with pytest.raises(InvalidInput, match=text):
            InputFile(str(tmp_path / name))


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


@pytest.mark.one_backend
def test_keys_name_the_line_that_is_invalid(app, tmp_path):
    """D10: the units before it are done."""

    @app.unit()
    def work(key: int) -> None: ...

    file = tmp_path / "keys"
    file.write_bytes(BOM + b"1\r\n\r\n2\r\nx3\r\n")
    keys = options.BatchArguments({"from": str(file)}, exits=False).keys(work)
    result = app.run(work, keys, output="none")
    assert (result.summary.succeeded, type(result.error)) == (2, InputFailed)
    assert str(result.error).startswith(f"the keys could not be read after 2: {file}, line 4: 'x3' is not a key of ")
    assert result.error.hint.startswith("Its keys are whole numbers.")


#: The edges of whole numbers, as texts of a command line: what fits 32, 53, 63 and 64 bits, and more.
EDGES = [
    *(f"{sign}{2**bits + more}" for bits in (31, 53, 63, 64) for more in (-1, 0, 1) for sign in ("", "-")),
    *("0", "1234567890123456789", "9" * 18, "9" * 19, "9" * 999, "-" + "9" * 998),
]


@pytest.mark.parametrize("where", ["ids", "from", "app.run"])
def test_whole_numbers_of_any_size_are_keys(app, tmp_path, where):
    """D11: each is one unit, is itself after a failure, in the ledger, in JSON and with --only."""
    made, fails = [], [True]

    @app.unit(max_failures=0)
    def work(key: int) -> None:
        made.append(key)
        assert not fails

    numbers = [int(text) for text in EDGES]
    (tmp_path / "keys").write_text("\n".join(EDGES))
    values = {"ids": ",".join(EDGES)} if where == "ids" else {"from": str(tmp_path / "keys")}
    keys = numbers if where == "app.run" else options.BatchArguments(values, exits=False).keys(work)
    failed = app.run(work, keys, output="none", source="edges")
    assert (failed.summary.failed, made) == (len(EDGES), numbers), "B1 is broken"
    fails.clear()
    made.clear()
    only = app.run(work, keys, output="none", source="edges", only=EDGES[:3])
    assert (only.summary.succeeded, sorted(made)) == (3, sorted(numbers[:3])), "B1 is broken"
    assert app.run(work, keys, output="none", source="edges").summary.succeeded == len(EDGES), "B1 is broken"
    assert sorted(made) == sorted(numbers), "B1 is broken"
    assert sorted(int(unit.key) for unit in app.store.batches.units(only.batch.id)) == sorted(numbers)


@pytest.mark.parametrize("middle", [0, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**50])
def test_a_range_may_cross_every_edge(app, middle):
    """D11: both ends are included; a run that stops continues; --resume-from finds its place."""
    made = []

    @app.unit(max_failures=1)
    def work(key: int) -> None:
        made.append(key)
        assert key != middle or made.count(key) == 2

    keys = options.parse_range(f"{middle - 3}-{middle + 3}")
    assert app.run(work, keys, output="none").exit_code == 8
    assert app.run(work, keys, output="none").summary.succeeded == 7, "B1 is broken"
    assert sorted(set(made)) == [*range(middle - 3, middle + 4)], "B1 is broken"
    again = app.run(work, keys, output="none", resume_from=str(middle + 2), dry_run=True)
    assert again.summary.pending == 2
    batch = app.submit(work, keys, name="elsewhere")
    assert app.store.batches.recount(batch.id) == {"pending": 7}


@pytest.mark.one_backend
@pytest.mark.parametrize("number", ["10**1000", "10**5000", "-(10**999)"])
def test_a_number_that_is_too_long_for_a_key_is_refused(app, number):
    """D11: a key has 1,000 bytes at most, numbers too."""

    @app.unit()
    def work(key: int) -> None: ...

    with pytest.raises(InvalidInput, match="is too long"):
        app.run(work, [eval(number)], output="none")


@pytest.mark.one_backend
@pytest.mark.parametrize("keys", [range(2**70), range(-(2**63), 2**63)])
def test_a_range_that_cannot_be_counted_is_refused(app, keys):
    @app.unit()
    def work(key: int) -> None: ...

    with pytest.raises(InvalidInput, match="are more than"):
        app.run(work, keys, output="none")
    with pytest.raises(InvalidInput, match="are more than"):
        options.parse_range(f"{keys[0]}-{keys[-1]}")


@pytest.mark.one_backend
def test_a_huge_range_continues_without_a_bitmap_of_it(app):
    """D11: its finished keys are looked up: a bit for each of its keys would not fit the memory."""

    @app.unit()
    def work(key: int) -> None: ...

    keys = range(2**62)
    assert app.run(work, keys, output="none", limit=6000, checkpoint="auto").summary.left_by == "limit"
    assert app.run(work, keys, output="none", limit=100, checkpoint="auto").summary.succeeded == 6100
