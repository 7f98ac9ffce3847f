"""E3: programs of users keep the contract when a run cannot begin: exit code, envelope, no traceback."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import subprocess
import sys
import textwrap

import pytest

import holdfast
from holdfast.domain.batches.batch_filter import batch_filter
from holdfast.errors import BatchHeld, InvalidInput
from tests.support.processes import wait_until

COMMAND = """
    import argparse, os, sys, threading
    import holdfast
    from holdfast import options

    app = holdfast.Holdfast(os.environ["STORE"])

    @app.unit(keys=lambda: range(1, 4))
    def work(key: int) -> None:
        if os.environ.get("HOLD"):
            open(os.environ["HOLD"], "w").close()
            threading.Event().wait(60)

    def loop():
        with app.session("loop", output=sys.argv[2]) as run:
            for key in run.pending([1, 2]):
                with run.unit(key):
                    work.function(key)
        run.exit()

    def command():
        parser = argparse.ArgumentParser()
        options.add_arguments(parser)
        batch = options.batch_arguments(parser.parse_args())
        app.run(work, batch.keys(work), **batch.run).exit()

    loop() if "loop" in sys.argv else command()
"""


def test_a_run_of_a_program_names_the_person(real_database):
    """As a run of the command line does; it was holdfast:client."""
    with holdfast.Holdfast(real_database.url) as app:

        @app.unit()
        def work(key: int) -> None:
            pass

        app.run(work, [1], output="none")
        (batch,) = app.store.batches.all(batch_filter(owner=getpass.getuser()))
        assert batch.actor == getpass.getuser()


@pytest.fixture
def command(real_database, tmp_path):
    file = tmp_path / "command.py"
    file.write_text(textwrap.dedent(COMMAND))

    def call(*words: str, wait: bool = True, **environment: str):
        names = {**os.environ, "STORE": real_database.url, **environment}
        process = subprocess.Popen(
            [sys.executable, str(file), *words],
            cwd=tmp_path, env=names, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        if not wait:
            return process
        out, err = process.communicate(timeout=120)
        assert "Traceback" not in err
        return process.returncode, out, err

    return call


MISTAKES = {
    "a backward range": ["--range", "5-1"],
    "no range": ["--range", "x"],
    "no selector": [],
    "two selectors": ["--range", "1-2", "--ids", "3"],
    "bad ids": ["--ids", "a,b"],
    "no such file": ["--from", "missing"],
    "no jobs": ["--range", "1-2", "--jobs", "0"],
    "a bad deadline": ["--range", "1-2", "--deadline", "soon"],
    "a bad checkpoint": ["--range", "1-2", "--checkpoint", "often"],
}


@pytest.mark.one_backend
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_on_the_command_line_is_exit_2_with_the_envelope(command, real_database, mistake):
    """E3: before anything is opened or begun."""
    code, out, _ = command(*MISTAKES[mistake], "-o", "json")
    document = json.loads(out)
    assert (code, document["status"], document["error"]["code"]) == (2, "error", "E_INVALID")
    with holdfast.Holdfast(real_database.url) as app:
        assert app.store.batches.page().batches == [], "E3: no batch was left open"


@pytest.mark.one_backend
def test_a_mistake_in_every_format(command):
    code, out, _ = command("--range", "5-1", "-o", "ndjson")
    assert (code, json.loads(out)["_meta"]["error"]["code"]) == (2, "E_INVALID")
    code, out, err = command("--range", "5-1")
    assert (code, out, err.startswith("error: ")) == (2, "", True)


@pytest.mark.one_backend
def test_an_unknown_format_is_exit_2(command):
    code, out, err = command("--range", "1-2", "-o", "bogus")
    assert (code, out, "not 'bogus'" in err) == (2, "", True)


@pytest.mark.one_backend
def test_a_store_that_is_not_there_is_exit_5_or_4(command):
    code, out, _ = command("--range", "1-2", "-o", "json", STORE="postgresql://nobody@127.0.0.1:1/none")
    assert (code, json.loads(out)["error"]["code"]) == (5, "E_STORE_UNAVAILABLE")
    code, out, _ = command("--range", "1-2", "-o", "json", STORE="sqlite:////missing/folder/jobs.db")
    assert (code, json.loads(out)["error"]["code"]) == (4, "E_CONFIG")


@pytest.mark.one_backend
def test_a_service_manager_that_does_not_answer_is_exit_4(command, tmp_path):
    manager = tmp_path / "pm2"
    manager.write_text("#!/bin/sh\nexit 1\n")
    manager.chmod(0o700)
    path = f"{tmp_path}:{os.environ['PATH']}"
    code, out, _ = command("--range", "1-2", "--conflicts", "pm2:mail", "-o", "json", PATH=path)
    assert (code, json.loads(out)["error"]["code"]) == (4, "E_CONFIG")
    assert "--allow-concurrent" in json.loads(out)["error"]["hint"]
    line = ("--range", "1-2", "--conflicts", "pm2:mail", "--allow-concurrent", "-o", "json")
    assert command(*line, PATH=path)[0] == 0, "OPS 0.20: the hint helps"


@pytest.mark.one_backend
def test_a_key_guards_runs_and_sessions(command):
    """E3: as it guards the commands of Holdfast; a dry run changes nothing."""
    guard = {"HOLDFAST_API_KEY_SHA256": hashlib.sha256(b"open").hexdigest()}
    code, out, _ = command("--all", "-o", "json", **guard)
    assert (code, json.loads(out)["error"]["code"]) == (4, "E_REFUSED")
    assert command("--all", "--dry-run", **guard)[0] == 0
    assert command("loop", "text", **guard)[0] == 4
    assert command("--all", **guard, HOLDFAST_API_KEY="open")[0] == 0
    assert command("loop", "text", **guard, HOLDFAST_API_KEY="open")[0] == 0


def test_a_loop_beside_a_live_run_is_exit_9(command, tmp_path):
    """E3: the body of the loop is not entered."""
    begun = tmp_path / "begun"
    alive = command("loop", "text", wait=False, HOLD=str(begun))
    try:
        wait_until(begun.exists)
        code, out, _ = command("loop", "json")
        assert (code, json.loads(out)["error"]["code"]) == (9, "E_BATCH_HELD")
        code, out, err = command("loop", "text")
        assert (code, out, f"pid {alive.pid}" in err) == (9, "", True)
    finally:
        alive.kill()
        alive.communicate()


def test_a_reader_that_closes_the_pipe_does_not_stop_the_run(command, real_database):
    """E3: quiet, and the batch runs on to its end."""
    for words in (["-o", "ndjson"], []):
        with command("--range", "1-2000", *words, wait=False) as process:
            process.stdout.close()
            err = process.stderr.read()
        assert (process.returncode, "Traceback" in err, "Exception" in err) == (0, False, False)
        with holdfast.Holdfast(real_database.url) as app:
            assert app.store.batches.page().batches[0].state == "done"


def test_a_silent_run_raises_what_nothing_would_print(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        work = app.unit(name="work")(lambda key: None)
        with pytest.raises(InvalidInput):
            app.run(work, [1], jobs=0, output="none")
        result = app.run(work, [1], jobs=0, output="json")
        assert (result.exit_code, result.batch) == (2, None)
        with pytest.raises(InvalidInput):
            result.check()
        with app.session("loop", output="none"), pytest.raises(BatchHeld):
            app.session("loop", output="none")
        with pytest.raises(SystemExit):
            app.session("loop", output="bogus")
