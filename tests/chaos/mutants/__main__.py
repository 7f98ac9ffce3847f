"""Puts each deliberate bug of this folder into a copy of the tree. The harness must fail and name what it breaks.

    python -m tests.chaos.mutants                    all of them, two at a time
    python -m tests.chaos.mutants renew paused       those whose names contain one of these words
    python -m tests.chaos.mutants --refresh          name the modules anew whose text has moved to another one

A mutant is a TOML file. ``bug`` describes it, ``invariants`` lists the promises of SPEC section 7 (I4) or the behaviours
(J14, R25 of section 8) that must be named, ``harness`` is the module that must fail. Each ``change`` is a triple: a
``module`` below ``src/holdfast``, the ``old`` text, which stands there once, and the ``new`` text.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PACKAGE = "src/holdfast"
COPIED = ("src", "tests", "docs", "pyproject.toml")
#: A harness that has not found the bug by then, in seconds, does not find it.
PATIENCE = 240
#: Seconds that a test of the harness waits for an event that the bug prevents; and every fault strikes at every point.
SETTINGS = {"HOLDFAST_PATIENCE": "30", "HOLDFAST_POINTS": "each"}
NAMED = re.compile(r"\b([A-Z]\d+) is broken")
IMPORTS = """
import importlib, pkgutil, holdfast
for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(holdfast.__file__)
"""


@dataclass(frozen=True)
class Change:
    """One place of a bug: the module, its text, and the text with the bug."""

    module: str
    old: str
    new: str

    def problem(self, root: Path) -> str | None:
        """Why the change cannot be made below *root*; None: it can."""
        path = root / PACKAGE / self.module
        if not path.exists():
            return f"{self.module} does not exist"
        count = f"\n{path.read_text()}".count(f"\n{self.old}")
        return None if count == 1 else f"the old text stands {count} times in {self.module}:\n{self.old}"

    def make(self, root: Path) -> None:
        path = root / PACKAGE / self.module
        path.write_text(f"\n{path.read_text()}".replace(f"\n{self.old}", f"\n{self.new}", 1)[1:])


@dataclass(frozen=True)
class Mutant:
    """One deliberate bug."""

    path: Path
    bug: str
    invariants: frozenset[str]
    harness: list[str]
    changes: list[Change]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def problems(self) -> list[str]:
        """Why it does not apply to this tree."""
        return [problem for change in self.changes if (problem := change.problem(ROOT))]


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant. *wrong* says why it does not count as caught."""

    mutant: Mutant
    named: list[str]
    seconds: float
    wrong: str | None = None


def read(path: Path) -> Mutant:
    """A mutant from its file."""
    fields = tomllib.loads(path.read_text())
    changes = [Change(**change) for change in fields["change"]]
    return Mutant(path, fields["bug"], frozenset(fields["invariants"]), shlex.split(fields["harness"]), changes)


def all_mutants() -> list[Mutant]:
    return [read(path) for path in sorted(HERE.glob("*.toml"))]


@contextmanager
def copy_of_the_tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="holdfast-mutant-") as folder:
        root = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, root / name)
        yield root


def try_out(mutant: Mutant) -> Verdict:
    """Apply, import, run the harness."""
    began = time.monotonic()
    if mutant.problems:
        return Verdict(mutant, [], 0.0, f"does not apply: {mutant.problems[0]}")
    with copy_of_the_tree() as root:
        for change in mutant.changes:
            change.make(root)
        imported = _python(root, "-c", IMPORTS)
        if imported.returncode or not imported.stdout.strip().endswith(str(root / "src" / "holdfast" / "__init__.py")):
            return Verdict(mutant, [], 0.0, f"does not import: {(imported.stderr or imported.stdout).strip()[-300:]}")
        try:
            ran = _python(root, "-m", *mutant.harness)
        except subprocess.TimeoutExpired:
            return Verdict(mutant, [], PATIENCE, "was not found in time")
    named = list(dict.fromkeys(NAMED.findall(ran.stdout + ran.stderr)))
    seconds = time.monotonic() - began
    if ran.returncode == 0:
        return Verdict(mutant, named, seconds, "survived")
    if not mutant.invariants & set(named):
        told = (ran.stdout + ran.stderr).strip()[-300:]
        return Verdict(
            mutant, named, seconds, f"the harness failed and did not name {sorted(mutant.invariants)}: {told}"
        )
    return Verdict(mutant, named, seconds)


def _python(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(root / "src"), str(root)])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env={**SETTINGS, **os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def refresh(mutant: Mutant) -> None:
    """Name the module anew for each change whose old text now stands in another one, once."""
    text = mutant.path.read_text()
    files = [path for path in (ROOT / PACKAGE).rglob("*") if path.suffix in (".py", ".sql")]
    for change in mutant.changes:
        if change.problem(ROOT):
            homes = [path for path in files if f"\n{path.read_text()}".count(f"\n{change.old}") == 1]
            if len(homes) == 1:
                moved = homes[0].relative_to(ROOT / PACKAGE)
                text = text.replace(
                    f"module = \"{change.module}\"\nold = '''\n{change.old}",
                    f"module = \"{moved}\"\nold = '''\n{change.old}",
                )
    mutant.path.write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(description="Does the harness find bugs that are put in on purpose?")
    parser.add_argument("words", nargs="*", help="only mutants whose names contain one of these")
    parser.add_argument("--refresh", action="store_true", help="name the modules anew of texts that have moved")
    asked = parser.parse_args()
    chosen = [m for m in all_mutants() if not asked.words or any(word in m.name for word in asked.words)]
    if asked.refresh:
        for mutant in chosen:
            refresh(mutant)
        return 0
    bad = 0
    with ThreadPoolExecutor(2) as pool:
        for verdict in pool.map(try_out, chosen):
            said = f"caught: {' '.join(verdict.named)}" if verdict.wrong is None else f"NOT CAUGHT: {verdict.wrong}"
            print(f"{verdict.mutant.name:36} {verdict.seconds:5.0f} s  {said}", flush=True)  # noqa: T201 - a program
            bad += verdict.wrong is not None
    print(f"{len(chosen) - bad} of {len(chosen)} mutants were caught")  # noqa: T201
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
