"""Units that run in child processes, or run programs, for tests that signal and kill.

``HOLDFAST_URL=… python -m tests.support.programs.child_units FUNCTION PATH --count N``
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from pathlib import Path

import holdfast

app = holdfast.Holdfast()
#: Nothing sets it: to wait for it is to take one's time.
NEVER = threading.Event()


@app.unit(executor="process", max_failures=0)
def child(key: int, *, path: str, nap: float = 0.0) -> int:
    """A unit in a child: it says that it has begun, takes its time, and says that it has ended."""
    Path(f"{path}-{key}-begun").write_text(str(os.getpid()))
    NEVER.wait(nap)
    Path(f"{path}-{key}-ended").touch()
    return os.getpid()


@app.unit(executor="process", lease=4, max_failures=0)
def leased(key: int, *, path: str) -> None:
    """A unit in a child that does not end by itself."""
    Path(f"{path}-{key}-begun").write_text(str(os.getpid()))
    NEVER.wait()


@app.unit(executor="process", timeout=2, max_failures=0)
def slow(key: str, unit: holdfast.Unit) -> None:
    """It obeys, does not obey, or kills its process."""
    match key:
        case "obeys":
            unit.sleep(60)
        case "hangs":
            NEVER.wait(60)
        case "dies":
            os.kill(os.getpid(), 9)


@app.unit(executor="process", memory="200M", max_failures=0)
def large(key: int) -> int:
    return len(bytearray(key * 1024 * 1024)) and NEVER.wait(30)


@app.unit(executor="process", max_failures=0)
def outcomes(key: str, unit: holdfast.Unit) -> str:
    match key:
        case "skip":
            raise holdfast.Skip("no need")
        case "label":
            unit.done("duplicate")
        case "hand":
            unit.hand_over({"text": "x" * 300_000})
    return key


@app.unit(executor="process", on_lost="verify", retries=1, retry=["0s"], max_failures=0)
def verified(key: int, *, path: str) -> None:
    """A unit with an effect that kills its process after it."""
    with Path(f"{path}-{key}").open("a") as effects:
        effects.write("made\n")
    os.kill(os.getpid(), 9)


@verified.verify
def is_made(key: int) -> bool:
    """The second process of a unit confirms even keys; of odd ones a later run does."""
    if key % 2:
        raise ValueError("the other side does not answer")
    return True


@app.unit(executor="process", max_failures=0)
def transacted(key: int, unit: holdfast.Unit) -> None:
    """A unit that ends in its own transaction; afterwards some of them raise, or are killed."""
    with unit.transaction() as connection:
        connection.execute(f"INSERT INTO effect VALUES ({key})")
    if key == 1:
        raise ValueError("too late")
    if key == 2:
        os.kill(os.getpid(), 9)


@app.unit(executor="process", max_failures=0)
async def awaited(key: int) -> int:
    """A coroutine in a child."""
    return key + 1


@app.unit()
def quick(key: int) -> None:
    """A unit in a thread that has nothing to do."""


@app.unit(executor="process")
def fatal(key: int) -> None:
    raise holdfast.Fatal("no disk")


@app.unit(max_failures=0)
def program(key: int, *, path: str, nap: float, unit: holdfast.Unit) -> None:
    """A unit that runs a program, which says the same."""
    code = (
        "import os, sys, threading, pathlib; path, nap = sys.argv[1:];"
        "pathlib.Path(path + '-begun').write_text(str(os.getpid())); threading.Event().wait(float(nap));"
        "pathlib.Path(path + '-ended').touch()"
    )
    unit.command([sys.executable, "-c", code, f"{path}-{key}", str(nap)])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("function")
    parser.add_argument("path")
    parser.add_argument("--count", type=int, default=2)
    parser.add_argument("--nap", type=float, default=2.0)
    asked = parser.parse_args()
    function = {"child": child, "program": program}[asked.function]
    app.run(function.bind(path=asked.path, nap=asked.nap), range(asked.count), jobs=2).exit()


if __name__ == "__main__":
    main()
