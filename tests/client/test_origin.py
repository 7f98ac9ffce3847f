"""The module of a main script, and the application that code belongs to."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import pytest

from holdfast.client.origin import application_of, module_of, origin_of

PROGRAM = """
import holdfast
from holdfast.client.origin import application_of
app = holdfast.Holdfast("sqlite:///never-opened.db")

@app.unit()
def sync(key: int) -> None: ...

if __name__ == "__main__":
    print(sync.origin, application_of(globals()))
"""
#: Ways to start the module pkg.mails: words, and the folder to start it in.
WAYS = {
    "script": (["pkg/mails.py"], "."),
    "script in its folder": (["mails.py"], "pkg"),
    "module": (["-m", "pkg.mails"], "."),
    "imported, as --app does": (["-c", "import pkg.mails as m; print(m.sync.origin, m.application_of(vars(m)))"], "."),
    "imported from its folder": (["-c", "import mails as m; print(m.sync.origin, m.application_of(vars(m)))"], "pkg"),
    "run by a tool": (["-c", "import runpy; runpy.run_path('pkg/mails.py', run_name='__main__')"], "."),
}


def outputs(folder, ways):
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    programs = {
        name: subprocess.Popen([sys.executable, *words], cwd=folder / start, env=environ, stdout=subprocess.PIPE)
        for name, (words, start) in ways.items()
    }
    return {name: program.communicate()[0].decode().strip() for name, program in programs.items()}


def test_a_function_has_one_origin_however_its_program_starts(tmp_path):
    """Script beside worker: python mails.py, python -m pkg.mails and --app pkg.mails:app are the same place."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "mails.py").write_text(PROGRAM)
    assert outputs(tmp_path, WAYS) == dict.fromkeys(WAYS, "pkg.mails:sync pkg")


def test_a_file_alone_is_a_module_and_code_without_a_file_is_main(tmp_path):
    """A notebook and python -c have no module that another process could import, and belong to no application."""
    (tmp_path / "mails.py").write_text(PROGRAM)
    ways = {
        "script": (["mails.py"], "."),
        "module": (["-m", "mails"], "."),
        "from elsewhere": ([str(tmp_path / "mails.py")], ".."),
        "notebook": (["-c", PROGRAM], "."),
    }
    expected = dict.fromkeys(ways, "mails:sync mails") | {"notebook": "__main__:sync None"}
    assert outputs(tmp_path, ways) == expected


def wrapped(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)

    return call


class Tool:
    def method(self): ...

    def __call__(self): ...


@pytest.mark.parametrize(
    ("function", "origin"),
    [
        (wrapped, f"{__name__}:wrapped"),
        (wrapped(os.path.join), "posixpath:join"),
        (Tool.method, f"{__name__}:Tool.method"),
        (Tool(), f"{__name__}:Tool"),
        (functools.partial(wrapped), "functools:partial"),
        (len, "builtins:len"),
    ],
)
def test_every_callable_has_an_origin(function, origin):
    assert origin_of(function) == origin


@pytest.mark.parametrize(
    ("variables", "application"),
    [
        ({"__name__": "shop.jobs"}, "shop"),
        ({"__name__": "__main__"}, None),
        ({"__name__": "__mp_main__", "__file__": "/nowhere/mails.py"}, None),
        ({"__name__": "holdfast.cli.session"}, None),
        ({}, None),
    ],
)
def test_an_application_is_a_package(variables, application):
    """What has no file, and Holdfast's own command line, is no application."""
    assert application_of(variables) == application


def test_the_main_script_of_a_child_is_that_of_its_worker(tmp_path):
    (tmp_path / "mails.py").touch()
    for name in ("__main__", "__mp_main__", "__holdfast_main__"):
        assert module_of({"__file__": str(tmp_path / "mails.py")}, name) == "mails"
