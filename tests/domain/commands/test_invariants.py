"""The eight invariants: violations show in the words, variables and caps of live commands."""

from __future__ import annotations

import pytest

from holdfast.domain.commands import invariants
from holdfast.domain.commands.command import Command
from holdfast.domain.commands.invariants import HostSize, LiveCommand
from holdfast.domain.health_check import Level

GB = 2**30
HOST = HostSize(memory=64 * GB, cores=16)


def live(*argvs, memory=GB, running=False, **options):
    """Programs that are live at once, numbered from 1."""
    return [
        LiveCommand(id=number, command=Command(argv=tuple(argv), cwd="/w", memory=memory, **options), running=running)
        for number, argv in enumerate(argvs, start=1)
    ]


def sh(text):
    return ["sh", "-c", text]


def complaints(checks):
    """The messages of violations; each has a fix."""
    violations = [check for check in checks if check.level is not Level.OK]
    assert all(check.fix for check in violations)
    return [check.message for check in violations]


def test_valid_commands_have_no_violations():
    commands = live(["sim", "--out", "a=1.csv", "1"], ["sim", "--out", "a=2.csv", "2"], sh("x > y.part && mv y.part y"))
    checks = list(invariants.examine(commands, HOST, ["/w/holdfast.toml"]))
    assert [check.name[0] for check in checks] == list("12345678")
    assert complaints(checks) == []


@pytest.mark.parametrize(
    "argvs",
    [
        (["sim", "--out", "out.csv", "1"], ["sim", "--out", "out.csv", "2"]),
        (["sim", "--output=/w/out.csv", "1"], ["sim", "-o", "./out.csv", "2"]),
        (sh("sim 1 > out.csv"), sh("sim 2 >> out.csv")),
        (sh("sim 1 | tee out.csv"), ["sim", "--log", "out.csv"]),
        (["flock", "/tmp/x.lock", "a"], ["flock", "/tmp/x.lock", "b"]),
        (["train", "--checkpoint", "/w/c.pt", "1"], ["train", "--checkpoint=c.pt", "2"]),
        (["env", "TMPDIR=/scratch", "a"], sh("TMPDIR=/scratch b")),
        (sh("sim 1 &> out.log"), sh("sim 2 >& out.log")),
        (["dd", "if=/dev/zero", "of=disk.img"], ["dd", "if=/a", "of=disk.img"]),
        (sh("cd a && cd ../b && sim 1 > out.csv"), ["sim", "-o", "b/out.csv"]),
        (sh("cd $DIR && sim 1 > /w/out.csv"), sh("cd /w; sim 2 > out.csv")),
    ],
)
def test_a_path_that_two_write_to_is_reported(argvs):
    """1: the same place, with different parameters."""
    (text,) = complaints(invariants.shared_paths(live(*argvs)))
    assert "(jobs 1, 2)" in text


@pytest.mark.parametrize("cd", ["cd a", "cd /a", "cd $DIR", "cd", "cd -", "cd ~", "pushd a", "(cd a; true)"])
def test_paths_after_cd_are_in_its_directory(cd):
    """Paths below a directory that cannot be known are left out."""
    elsewhere = sh(f"{cd} && sim 1 > out.csv && rm -f x/y")
    assert complaints(invariants.shared_paths(live(elsewhere, ["sim", "-o", "out.csv"]))) == []
    assert complaints(invariants.checked_first(live(elsewhere, ["sim", "-o", "x/y"]))) == []
    assert complaints(invariants.checked_first(live(sh("cd x && rm -f y"), ["sim", "-o", "x/y"])))


def test_a_temporary_directory_that_two_share_is_reported():
    """1: by its variable. What is the same program twice shares nothing but itself."""
    env = {"TMPDIR": "/scratch"}
    assert "/scratch" in complaints(invariants.shared_paths(live(["a"], ["b"], env=env)))[0]
    assert complaints(invariants.shared_paths(live(["a"], ["a"], env=env))) == []
    assert complaints(invariants.shared_paths(live(["a"], ["b"], env={"SIM_OUT_DIR": "/results"})))
    assert complaints(invariants.shared_paths(live(["a"], ["b"], env={"COLOUR": "red"}))) == []


def test_a_command_that_is_queued_twice_is_reported():
    """2: unless it has a key, which would have told."""
    twice = live(["sim", "1"], ["sim", "1"])
    assert complaints(invariants.checked_first(twice)) == [
        "the same command is queued more than once: sim 1 (jobs 1, 2)"
    ]
    keyed = [LiveCommand(id=one.id, command=one.command, key=str(one.id)) for one in twice]
    assert complaints(invariants.checked_first(keyed)) == []


def test_deleting_a_path_of_another_command_is_reported():
    """2: look whose it is."""
    commands = live(["rm", "-rf", "/scratch/a"], ["sim", "/scratch/a"], sh("rm -rf /scratch/b"))
    assert complaints(invariants.checked_first(commands)) == [
        "a live command deletes a path that another live one uses: job 1 deletes /scratch/a"
    ]
    assert len(list(invariants.checked_first(commands))) == 1, "E1.6: it also said that nothing is against it"


@pytest.mark.parametrize(
    "other",
    [
        {"argvs": [["sim", "/scratch/a/b"]]},
        {"argvs": [["sim", "--input=/scratch/a"]]},
        {"argvs": [["sim"]], "env": {"DATA": "/scratch/a"}},
    ],
)
def test_deleting_a_folder_above_a_path_of_another_command_is_reported(other):
    """2, E1.6: by an option, and by a variable."""
    deleting = live(["rm", "-rf", "/scratch"])
    (user,) = live(*other["argvs"], env=other.get("env", {}))
    second = LiveCommand(id=2, command=user.command)
    assert complaints(invariants.checked_first([*deleting, second])) == [
        "a live command deletes a path that another live one uses: job 1 deletes /scratch"
    ]


@pytest.mark.parametrize(
    ("text", "bad"), [("rm x", True), ("rm -r x; y", True), ("rm -rf x", False), ("rm -f x", False)]
)
def test_a_delete_that_does_not_tolerate_absence_is_reported(text, bad):
    """3: in the text of a shell, and by itself."""
    for argv in (sh(text), text.partition(";")[0].split()):
        assert bool(complaints(invariants.tolerant_deletes(live(argv)))) is bad


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("sim > state.json", True),
        ("sim > state.part && mv state.part state.json", False),
        ("sim >> log", False),
        ("sim > /dev/null 2>&1", False),
        ("sim &> state.json", True),
    ],
)
def test_a_write_that_is_not_atomic_is_reported(text, bad):
    """4: the file itself is written, not one that takes its place."""
    assert bool(complaints(invariants.atomic_writes(live(sh(text))))) is bad


def test_more_than_one_config_is_reported():
    """5"""
    assert complaints(invariants.one_config(["/a/holdfast.toml", "/holdfast.toml"]))
    assert complaints(invariants.one_config([])) == []


def test_an_overcommitted_or_idle_host_is_reported():
    """6: caps beyond 80 %, or programs that wait though they would fit."""
    many = live(*(["sim", str(n)] for n in range(60)), running=True)
    assert "more than 80 %" in complaints(invariants.used_host(many, HOST))[0]
    waiting = live(["sim"])
    idle = HostSize(memory=64 * GB, cores=16, at_once=1)
    assert complaints(invariants.used_host(waiting, idle)) == [
        "1 command waits and 1 run here, although 12 would fit by cores"
    ]
    assert complaints(invariants.used_host(waiting, HOST)) == []


def test_commands_without_a_cap_are_reported():
    """7: and swap that caps do not count."""
    assert "2 live commands have no memory limit (jobs 1, 2)" in complaints(
        invariants.capped(live(["a"], ["b"], memory=None), HOST)
    )
    swapping = HostSize(memory=GB, cores=1, swap=GB, swap_counts=False)
    assert "swap" in complaints(invariants.capped(live(["a"]), swapping))[0]
    assert complaints(invariants.capped(live(["a"]), HOST)) == []


def test_references_by_job_id_are_reported():
    """8"""
    commands = live(sh("holdfast wait 17 && merge"), ["holdfast", "wait", "--label", "x"], ["holdfast", "log", "3"])
    (text,) = complaints(invariants.watched_by_name(commands))
    assert "holdfast wait 17 (job 1)" in text
    assert "(job 3)" in text
    assert "(job 2)" not in text


def test_a_text_that_no_shell_could_read_is_passed_by():
    assert complaints(invariants.examine(live(sh("echo 'open > x")), HOST, [])) == []
