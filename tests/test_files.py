"""Files of users: atomic writes, appends, deletes and paths."""

from __future__ import annotations

import os
import stat
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import files
from holdfast.errors import InvalidInput
from tests.support.processes import Child, race, wait_until


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "state.json"
    files.write(path, "one")
    files.write(path, b"two")
    assert path.read_bytes() == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_missing_folders_are_created(tmp_path):
    """O12: path_for makes folders in the name, and write made none."""
    path = files.path_for(tmp_path / "out", suffix=".json", symbol="A", year=2020)
    files.write(path, "{}")
    files.write(path, "[]")
    files.append(tmp_path / "logs" / "today" / "log", "line")
    assert path.read_text() == "[]"
    assert (tmp_path / "logs" / "today" / "log").read_text() == "line\n"


def write_half(path):
    with files.writing(path) as file:
        file.write(b"tw")
        raise ZeroDivisionError


def test_a_failure_in_the_middle_leaves_the_old_file(tmp_path):
    path = tmp_path / "state.json"
    files.write(path, "one")
    with pytest.raises(ZeroDivisionError):
        write_half(path)
    assert path.read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def write_for_ever(pipe, path):
    pipe.send("up")
    n = 0
    while True:
        n += 1
        files.write(path, f"{n}".zfill(8) * 10_000)


def test_a_kill_in_the_middle_leaves_a_whole_file(tmp_path):
    """A reader never sees half a file, whenever the writer is killed."""
    path = tmp_path / "state.json"
    files.write(path, "0" * 80_000)
    for _ in range(5):
        child = Child(write_for_ever, path)
        child.hear()
        before = path.read_text()
        wait_until(lambda before=before: path.read_text() != before, every=0.001)
        child.kill()
        child.end()
        text = path.read_text()
        assert len(text) == 80_000
        assert len({text[place : place + 8] for place in range(0, len(text), 8)}) == 1


def test_a_file_keeps_its_mode_and_a_link_its_target(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("one")
    target.chmod(0o640)
    link.symlink_to(target)
    files.write(link, "two")
    assert (target.read_text(), link.is_symlink(), stat.S_IMODE(target.stat().st_mode)) == ("two", True, 0o640)


def append_many(index, barrier, path):
    barrier.wait()
    for n in range(100):
        files.append(path, f"{index} {n} " + "x" * 10_000)


def test_lines_of_many_processes_never_mix(tmp_path):
    path = tmp_path / "log"
    race(4, append_many, path)
    lines = path.read_text().splitlines()
    assert len(lines) == 400
    assert {len(line.split()[2]) for line in lines} == {10_000}
    assert len({tuple(line.split()[:2]) for line in lines}) == 400


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path):
    """Its writer was killed in the middle."""
    path = tmp_path / "log"
    path.write_text("one\ntw")
    files.append(path, "three")
    assert path.read_text() == "one\ntw\nthree\n"


def test_a_file_can_be_deleted_twice(tmp_path):
    """The second delete returns false; of a link, the link is deleted and not its target."""
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.touch()
    (folder / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(folder)
    assert files.delete(tmp_path / "link")
    assert folder.exists()
    assert [files.delete(file), files.delete(file), files.delete(folder), files.delete(folder)] == [True, False] * 2


def test_two_processes_can_delete_a_folder(tmp_path):
    folder = tmp_path / "folder"
    for n in range(300):
        (folder / str(n)).mkdir(parents=True)
    threads = [threading.Thread(target=files.delete, args=(folder,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not folder.exists()


def test_a_path_carries_every_parameter():
    path = files.path_for("out", symbol="A/B", threshold=0.5, year=2020, suffix=".csv")
    assert str(path) == "out/symbol=A%2FB/threshold=0.5/year=2020.csv"
    with pytest.raises(InvalidInput):
        files.path_for("out")


values = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(values, values)
def test_no_two_values_share_a_path(one, other):
    first, second = files.path_for("out", x=one), files.path_for("out", x=other)
    assert (first == second) == (one == other)


@given(values, values)
def test_no_value_leads_elsewhere(one, other):
    path = files.path_for("out", a=one, b=other, suffix=".csv")
    assert path.parts[0] == "out"
    assert len(path.parts) == 3
    assert os.path.normpath(path) == str(path)
    assert all(len(part.encode()) <= 255 for part in path.parts)
