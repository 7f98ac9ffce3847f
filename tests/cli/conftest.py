"""Fixtures that call ``holdfast`` in this process."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

import holdfast
from holdfast.cli.main import main
from tests.support.programs import batch_units
from tests.support.reference import checker


class Answer:
    """The output of one call, and its exit code."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def document(self):
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def data(self):
        return self.document["data"]

    @property
    def lines(self):
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:

        @app.job()
        def mail(to: int, subject: str = "hello") -> str:
            return f"{subject} {to}"

        @app.job(max_attempts=1, queue="slow")
        def broken() -> None:
            raise ValueError("no good\x1b[31m")

        assert app.store
        yield app


@pytest.fixture
def run(app, real_database, capsys, monkeypatch):
    """Calls ``holdfast`` on the store of the test."""
    monkeypatch.setenv("HOLDFAST_URL", real_database.url)

    def call(*arguments) -> Answer:
        capsys.readouterr()
        with pytest.raises(SystemExit) as finished:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Answer(finished.value.code, captured.out, captured.err)

    return call


@pytest.fixture
def fitting(run):
    """Calls a command with -o json and validates the answer against its schema."""

    def call(path, *arguments) -> Answer:
        answer = run(*path, "-o", "json", *arguments)
        checker(path).validate(answer.document)
        return answer

    return call


@pytest.fixture
def own_store(real_database):
    """The application of tests/support/programs/batch_units.py uses the store of the test."""
    batch_units.app.use(real_database.url)
    yield
    batch_units.app.close()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current directory, with a log folder of its own."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return folder


@pytest.fixture
def zone(monkeypatch):
    """Sets the time zone of this process."""

    def use(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield use
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def call(fitting):
    return lambda action, *arguments: fitting((action,), *arguments)


@pytest.fixture
def add(call):
    """Adds a command and answers its job's id."""
    return lambda *arguments: call("add", *arguments).data["id"]


def run_process(*arguments, **options):
    """Run ``holdfast`` to its end, in a process of its own."""
    line = [sys.executable, "-m", "holdfast", *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False, **options)


def payload_of(app, job_id):
    """The payload of a job, decoded."""
    return json.loads(app.views.get(job_id).payload)
