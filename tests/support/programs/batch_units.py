"""Functions for ``holdfast batch run`` in tests. The store comes from HOLDFAST_URL."""

from __future__ import annotations

import holdfast

app = holdfast.Holdfast()


@app.unit(keys=lambda: ["a", "b"])
def greet(name: str, *, loud: bool = False, unit: holdfast.Unit) -> str:
    if name == "skip":
        raise holdfast.Skip("not today")
    unit.done("loud" if loud else "quiet")
    return f"hello {name}"


def plain(n: int) -> None:
    if n == 3:
        raise ValueError("no three\x1b[31m")
