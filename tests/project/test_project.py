"""What the project promises about itself: the door, the words, the errors."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import holdfast
import holdfast.errors.http
from holdfast import errors
from holdfast.errors.table import BATCH_ENDS, EXIT_CODES, error_classes, error_table

ROOT = Path(__file__).parents[2]
#: Pages that speak of other tools, in the words of these tools.
FOREIGN = {ROOT / "docs" / "glossary.md", *(ROOT / "docs" / "coming-from").glob("*.md")}
SOURCES = [
    *sorted((ROOT / "src").rglob("*.py")),
    *sorted((ROOT / "src").rglob("*.sql")),
    *sorted({*(ROOT / "docs").rglob("*.md")} - FOREIGN),
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
    "reaper": "maintenance",
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


#: The classes and modules that users hold; all others are reached through the types that these return.
PUBLIC_CLASSES = ("Holdfast", "BatchRegistry", "Enqueuer", "Schedules")
PUBLIC_MODULES = ("holdfast.testing", "holdfast.options", "holdfast.files")
#: Returned for other calls of Holdfast; their own methods are not part of the promise.
OPAQUE = {"Store", "Kind", "Worker", "Definition"}


def holdfast_types() -> set[str]:
    """The names of all classes and ids in the source."""
    names = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Assign) and getattr(getattr(node.value, "func", None), "id", "") == "NewType":
                names.update(target.id for target in node.targets)
    return names


def public_returns(owner: object) -> dict[str, str]:
    """The return annotations of the public functions, methods and properties that *owner* defines."""
    annotations = {}
    for base in owner.__mro__ if inspect.isclass(owner) else [owner]:
        for name, value in vars(base).items():
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            function = inspect.unwrap(function) if callable(function) else function
            is_own = inspect.isclass(owner) or getattr(function, "__module__", "") == owner.__name__
            if not name.startswith("_") and inspect.isfunction(function) and is_own:
                annotations[name] = str(function.__annotations__.get("return", ""))
    return annotations


def test_every_returned_type_can_be_imported_from_the_door():
    """Walk the public API by its annotations: a returned type of ours is in ``holdfast.__all__``."""
    types, seen = holdfast_types(), set()
    waiting = [getattr(holdfast, name) for name in PUBLIC_CLASSES] + [import_module(name) for name in PUBLIC_MODULES]
    while waiting:
        owner = waiting.pop()
        for name, annotation in public_returns(owner).items():
            for returned in types & set(re.findall(r"\w+", annotation)) - seen:
                assert returned in holdfast.__all__, f"{owner.__name__}.{name} returns {returned}"
                seen.add(returned)
                if returned not in OPAQUE and inspect.isclass(value := getattr(holdfast, returned)):
                    waiting.append(value)
    assert {"JobRef", "Job", "UnitFunction", "BatchResult", "InboxResult", "Schedule", "Settlement"} <= seen


def test_every_error_can_be_imported_from_the_door():
    """The classes of the page of errors, and those that docstrings of public calls name under ``Raises:``."""
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    listed = set(re.findall(r"^\| `E_\w+` \| \d+ \| `(\w+)`", page, re.MULTILINE))
    for value in [getattr(holdfast, name) for name in holdfast.__all__]:
        for member in [value, *vars(value).values()] if inspect.isclass(value) else []:
            raises = (inspect.getdoc(member) or "").partition("Raises:\n")[2].partition("\n\n")[0]
            listed |= {
                name for name in re.findall(r"^    (\w+): ", raises, re.MULTILINE) if hasattr(holdfast.errors, name)
            }
    assert listed > {"JobFailed", "JobCancelled", "WaitTimeout", "DuplicateSchedule"}
    missing = listed - set(holdfast.__all__)
    assert {name for name in missing if not hasattr(holdfast.errors.http, name)} == set()


def test_the_door_is_complete():
    """Every name of ``__all__`` is there, and the names for type checkers are the same."""
    assert all(hasattr(holdfast, name) for name in holdfast.__all__)
    door = ast.parse(Path(holdfast.__file__).read_text())
    block = next(node for node in door.body if isinstance(node, ast.If))
    checked = {(alias.name, node.module) for node in block.body for alias in node.names}
    assert {name for name, _ in checked} | set(holdfast.errors.__all__) == set(holdfast.__all__)
    assert checked == set(holdfast._HOMES.items())


def test_importing_the_door_is_cheap():
    """No driver, no command line, no web, no event loop; not with an application either."""
    code = "import sys, holdfast; holdfast.Holdfast('sqlite:///jobs.db'); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in run.stderr.splitlines()} | {*run.stdout.split()}
    assert "holdfast.app" in loaded
    assert not {"rich", "click", "psycopg", "asyncio", "starlette", "sqlalchemy", "psutil"} & loaded


@pytest.mark.parametrize("word", BANNED)
def test_one_word_per_concept(word):
    """The glossary's words, and no others for the same thing."""
    pattern = re.compile(rf"\b{word}\b", re.IGNORECASE)
    lines = [
        f"{path.name}:{n}"
        for path in SOURCES
        for n, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert not lines, f"say {BANNED[word]!r}: {lines}"


def test_every_error_has_a_code_of_its_own():
    """A word for programs, an exit code for shells."""
    codes = [error.code for error in error_classes()]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"E_[A-Z_]+", code) for code in codes)
    assert {error.exit_code for error in error_classes()} <= {1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 14, 15}


def test_every_code_is_in_the_table():
    """Of every class and of every end of a batch run, with an exit code or an HTTP status that is known."""
    table = error_table()
    assert {error.code for error in error_classes()} | {end.code for end in BATCH_ENDS.values()} <= set(table)
    assert {row.exit_code for row in table.values() if row.http_status is None} <= set(EXIT_CODES)
    assert all(row.exit_code is None and 400 <= row.http_status < 600 for row in table.values() if row.http_status)


def test_every_code_that_is_printed_is_explained():
    """holdfast explain knows each code in the source, also those of the command line itself."""
    written = {code for file in (ROOT / "src").rglob("*.py") for code in re.findall(r'"(E_[A-Z_]+)"', file.read_text())}
    assert written - set(error_table()) == set()


def test_the_drawn_tree_of_errors_is_the_real_one():
    """The docstring shows every error."""
    drawn = set(re.findall(r"[├└]── (\w+)", errors.__doc__))
    assert drawn == {error.__name__ for error in error_classes()} - {"HoldfastError"}


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


@pytest.mark.parametrize("name", ["run.txt", "docs.txt"])
def test_quick_setups_have_the_versions_of_the_tests(name):
    """make run and make docs-site install a part of what the tests use."""

    def pins(name):
        return set(re.findall(r"^(\S+==\S+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE))

    assert pins(name)
    assert pins(name) <= pins("dev.txt")


def test_make_run_installs_what_the_package_needs():
    """Its environment is not that of the tests, in which a missing package would not be noticed."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert (ROOT / "requirements" / "run.in").read_text().split() == needed
