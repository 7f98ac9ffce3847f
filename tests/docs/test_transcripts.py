"""The transcripts and scripts of the guides, run as a reader would run them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_snippets import ROOT
from tests.support.processes import PATIENCE, wait_until

GUIDES = ROOT / "docs" / "guides"


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", (GUIDES / page).read_text(), re.DOTALL | re.MULTILINE)


def steps(page):
    """Each command of a page's transcripts, with the lines that it should print."""
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            yield command, expected.splitlines()


def same(line, pattern):
    """Whether a line is as the page says: ``…`` stands for anything, and spaces do not count."""
    words = [re.escape(" ".join(piece.split())) for piece in pattern.split("…")]
    return re.fullmatch(r"\s*.*\s*".join(words), " ".join(line.split()))


def without_sleep(command):
    """A line that sleeps before it reads something, as one that reads until it is there."""
    _, _, read = command.partition("; ") if command.startswith("sleep ") else ("", "", "")
    return f"until {read} | grep -E 'progress|running '; do :; done > {os.devnull}; {read}" if read else command


def shell(directory, command):
    """Run a line as a reader would, with the program on the path and nothing configured."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    environ |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "XDG_DATA_HOME": str(directory / "data")}
    environ["TZ"] = "UTC"
    line = ["timeout", str(PATIENCE), "bash", "-c", command]
    return subprocess.run(line, cwd=directory, env=environ, capture_output=True, text=True, check=False)


def test_first_steps(tmp_path):
    """From an empty directory to a job that was interrupted, killed, and finished."""
    (tmp_path / "jobs.py").write_text(blocks("first-steps.md", "python")[0])
    (tmp_path / "holdfast.toml").write_text(blocks("first-steps.md", "toml")[0])
    try:
        for command, expected in steps("first-steps.md"):
            done = shell(tmp_path, without_sleep(command))
            lines = done.stdout.splitlines()
            assert len(lines) == len(expected), (command, done.stdout, done.stderr)
            for line, pattern in zip(lines, expected, strict=True):
                assert same(line, pattern), (command, line, pattern)
        story = shell(tmp_path, "holdfast show 1").stdout
        assert "released" in story
        assert "lease_lost" in story
    finally:
        shell(tmp_path, "holdfast down --all --now")


def test_the_crash_of_the_readme(tmp_path):
    """Its lines, but for the one that only waits: the worker is killed, and the job continues from its checkpoint."""
    text = (ROOT / "README.md").read_text()
    section = text[text.index("## Survive a crash") : text.index("## Use it in your code")]
    (module,) = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    (lines,) = re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    started = """until holdfast show 1 -o json | grep -q '"checkpoint":[1-9]'; do :; done"""
    script = lines.replace("sleep 4", started)
    (tmp_path / "jobs.py").write_text(module)
    run = shell(tmp_path, f"set -e\n{script}")
    try:
        assert run.returncode == 0, (run.stdout, run.stderr)
        assert re.search(r'result +"counted from [1-9]\d* to 200"', run.stdout)
    finally:
        shell(tmp_path, "holdfast down --all --now")


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Saves a script of the guide; ``sleep`` and ``systemctl`` only write down what they were told."""

    def save(place):
        file = tmp_path / "script"
        file.write_text(blocks("scripts.md", "sh")[place])
        return file

    for name in ("sleep", "systemctl", "pm2"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/told\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "told").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return save


@pytest.mark.parametrize(
    ("codes", "ends", "sleeps"),
    [
        ([0], 0, 0),
        ([6], 6, 0),
        ([7, 7, 0], 0, 0),
        ([8, 7, 6], 6, 1),
        ([7, 9], 9, 0),
        ([130], 130, 0),
        ([7, 7, 7, 7, 7, 0], 7, 0),
        ([8, 8, 8, 8, 8, 0], 8, 4),
    ],
)
def test_run_again_until_done(script, tmp_path, codes, ends, sleeps):
    file = script(0)
    (tmp_path / "codes").write_text("".join(f"{code}\n" for code in codes))
    command = tmp_path / "command"
    command.write_text(f"#!/bin/sh\ncode=$(head -1 {tmp_path}/codes)\nsed -i 1d {tmp_path}/codes\nexit $code\n")
    done = subprocess.run(["sh", file, "sh", command], timeout=PATIENCE, check=False)
    assert done.returncode == ends
    assert (tmp_path / "told").read_text() == "sleep 60\n" * sleeps


@pytest.mark.parametrize("code", [0, 7])
def test_without_the_service(script, tmp_path, code):
    """Stopped before, started after, whatever came of it."""
    line = ["sh", script(2), "web", "sh", "-c", f"echo work >> {tmp_path}/told; exit {code}"]
    assert subprocess.run(line, timeout=PATIENCE, check=False).returncode == code
    told = (tmp_path / "told").read_text().splitlines()
    assert told == ["systemctl --user stop web", "work", "systemctl --user start web"]


@pytest.mark.parametrize(
    ("codes", "ends", "calls"),
    [
        ([0], 0, []),
        ([6], 6, []),
        ([9, 0], 0, ["pm2 stop mail", "pm2 start mail"]),
        ([9, 7], 7, ["pm2 stop mail", "pm2 start mail"]),
        ([9, 9], 9, ["pm2 stop mail", "pm2 start mail"]),
    ],
)
def test_a_service_is_stopped_only_where_it_is_in_the_way(script, tmp_path, codes, ends, calls):
    """OPS 0.38: recipe 1 in its own form: run, stop on 9, run again, start whatever came of it."""
    (tmp_path / "codes").write_text("".join(f"{code}\n" for code in codes))
    command = tmp_path / "command"
    command.write_text(f"#!/bin/sh\ncode=$(head -1 {tmp_path}/codes)\nsed -i 1d {tmp_path}/codes\nexit $code\n")
    done = subprocess.run(["sh", script(1), "mail", "sh", command], timeout=PATIENCE, check=False)
    assert (done.returncode, (tmp_path / "told").read_text().splitlines()) == (ends, calls)


def test_the_service_is_started_after_ctrl_c(script, tmp_path):
    """The command hears the signal and ends in its own way; the script starts the service, with the command's code."""
    work = "import signal, sys; signal.signal(2, lambda *_: sys.exit(7)); open('begun', 'w').close(); signal.pause()"
    line = ["sh", script(2), "web", sys.executable, "-c", work]
    process = subprocess.Popen(line, cwd=tmp_path, start_new_session=True)
    wait_until((tmp_path / "begun").exists)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(PATIENCE) == 7
    assert (tmp_path / "told").read_text().splitlines()[-1] == "systemctl --user start web"


def test_the_preview_of_the_guide_is_what_one_sees(tmp_path):
    """Over the night in which the clocks go forward."""
    ((command, expected),) = steps("schedules.md")
    assert shell(tmp_path, command).stdout.splitlines() == expected
