"""What the project promises about itself: the door, the words, the errors."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast import errors

ROOT = Path(__file__).parents[2]
SOURCES = [
    *sorted((ROOT / "src").rglob("*.py")),
    *sorted((ROOT / "src").rglob("*.sql")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("*.md")),
]

#: One word per concept: what each of these would be called here.
BANNED = {
    "task": "job",
    "tasks": "jobs",
    "acknowledge": "settle",
    "ack": "settle",
    "nack": "release",
    "reap": "take over",
    "reaper": "sweep",
    "lock_token": "token",
    "visibility": "lease",
    "broker": "store",
    "group_id": "queue",
    "enqueued_job": "job",
}


def all_errors() -> list[type[errors.HoldfastError]]:
    return [
        value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, errors.HoldfastError)
    ]


def test_the_door_is_small():
    """At most 15 names, all of them there."""
    assert len(holdfast.__all__) <= 15
    assert all(hasattr(holdfast, name) for name in holdfast.__all__)


def test_importing_the_door_is_cheap():
    """No driver, no command line, no web, no event loop; not with an application either."""
    code = "import sys, holdfast; holdfast.Holdfast('sqlite:///jobs.db'); print(*sys.modules)"
    told = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in told.stderr.splitlines()} | {*told.stdout.split()}
    assert "holdfast.app" in loaded
    assert not {"rich", "click", "psycopg", "asyncio", "starlette", "sqlalchemy", "psutil"} & loaded


@pytest.mark.parametrize("word", BANNED)
def test_one_word_per_concept(word):
    """The glossary's words, and no others for the same thing."""
    pattern = re.compile(rf"\b{word}\b", re.IGNORECASE)
    found = [
        f"{path.name}:{n}"
        for path in SOURCES
        for n, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, f"say {BANNED[word]!r}: {found}"


def test_every_error_has_a_code_of_its_own():
    """A word for programs, an exit code for shells."""
    codes = [error.code for error in all_errors()]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"E_[A-Z_]+", code) for code in codes)
    assert {error.exit_code for error in all_errors()} <= {1, 2, 3, 4, 5, 9, 10, 11, 12, 14, 15}


def test_the_drawn_tree_of_errors_is_the_real_one():
    """The docstring shows every error."""
    drawn = set(re.findall(r"[├└]── (\w+)", errors.__doc__))
    assert drawn == {error.__name__ for error in all_errors()} - {"HoldfastError"}


def test_modules_and_functions_stay_small():
    """A module is one noun, a function one step."""
    import ast

    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text()
        assert text.count("\n") <= 401, f"{path.name} is too long"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = node.end_lineno - node.lineno + 1 - len((ast.get_docstring(node) or "").splitlines())
                assert length <= 45, f"{path.name}: {node.name} is too long"


def test_layers_hold():
    """A layer imports only below itself."""
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_no_tracked_file_names_a_registry_or_this_machine():
    """The project speaks of itself alone."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert "README.md" in listed
    hosts = re.compile("|".join(["pypi" + r"\.org", "pythonhosted" + r"\.org", "registry" + r"\.npmjs", "/" + "work/"]))
    for name in listed:
        path = ROOT / name
        if path.is_file() and path.suffix not in {".png", ".woff2"}:
            assert not hosts.search(path.read_text(errors="replace")), name
