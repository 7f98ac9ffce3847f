"""Names that applications share on a store: kinds, schedules and scope functions, and the code behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec
from msgspec import Struct

#: The step that separates two applications, and the one after a move.
SEPARATE = "Give one of the applications a namespace: Holdfast(namespace=…). If they are one, give both the same name=."
RESTART = "After a move, restart the older workers. Otherwise give one of the two another name."


class ServedNames(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The names that a worker serves, with the origin of the function behind each, and its application.

    *application* is None for workers that belong to none, such as those of the command line.
    """

    application: str | None = None
    kinds: dict[str, str] = {}
    schedules: dict[str, str] = {}
    scopes: dict[str, str] = {}

    def dumps(self) -> str:
        """Encode it as JSON; equal names have equal JSON."""
        return msgspec.json.encode(self, order="deterministic").decode()


@lru_cache(maxsize=1000)
def load_names(text: str) -> ServedNames:
    """Decode :meth:`ServedNames.dumps`."""
    return msgspec.json.decode(text, type=ServedNames)


class SharedName(Struct, frozen=True):
    """A name behind which live workers have different code. *places* are its modules, each with its application.

    *across*: in different applications. Otherwise one application has it in two modules, as during a deploy that moves
    a module.
    """

    sort: str
    name: str
    places: tuple[str, ...]
    across: bool

    @property
    def text(self) -> str:
        """What is wrong, as a sentence."""
        places = " and ".join(self.places)
        if self.across:
            return f"{self.sort} {self.name!r} belongs to several applications: {places}"
        return f"{self.sort} {self.name!r} lives in several modules: {places}"

    @property
    def fix(self) -> str:
        """The next step."""
        return SEPARATE if self.across else RESTART


#: Fields of :class:`ServedNames`, and what to call their names.
_SORTS = {"kinds": "the kind", "schedules": "the schedule", "scopes": "the scope function"}


def shared_names(used: Iterable[ServedNames], *, of: ServedNames | None = None) -> list[SharedName]:
    """The names behind which several applications or modules stand, those of several applications first.

    *of*: only names that these have too.
    """
    every, shared = list(used), []
    for field, sort in _SORTS.items():
        places: dict[str, set[tuple[str, str]]] = {}
        for names in every:
            served: Mapping[str, str] = getattr(names, field)
            for name, origin in served.items():
                places.setdefault(name, set()).add((names.application or "", origin.partition(":")[0]))
        for name, modules in sorted(places.items()):
            if of is not None and name not in getattr(of, field):
                continue
            if len({module for _, module in modules}) > 1:  # applications may share a library
                across = len({application for application, _ in modules if application}) > 1
                shared.append(SharedName(sort, name, tuple(_place(*each) for each in sorted(modules)), across))
    return sorted(shared, key=lambda each: not each.across)


def _place(application: str, module: str) -> str:
    return f"{module} of {application}" if application else module
