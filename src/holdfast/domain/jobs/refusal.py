"""Refusals: builds of workers that could not read the payload of a job, and the build that tries next."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from holdfast.domain.names import clean_text

#: Longest error that a refusal keeps, in characters; the attempt has the full text.
MAX_ERROR = 300


class PayloadRefusal(Struct, frozen=True):
    """A build that could not read a payload: the version of the kind that its code has, one of its workers, and why."""

    build: str
    version: int
    worker: str
    error: str


def load_refusals(text: str | None) -> tuple[PayloadRefusal, ...]:
    """Decode the column ``refusals``."""
    return () if text is None else msgspec.json.decode(text, type=tuple[PayloadRefusal, ...])


def dump_refusals(refusals: Sequence[PayloadRefusal] | None) -> str | None:
    """Encode the column ``refusals``; None leaves it as it is."""
    return None if refusals is None else msgspec.json.encode(refusals).decode()


def add_refusal(known: Sequence[PayloadRefusal], refusal: PayloadRefusal) -> tuple[PayloadRefusal, ...]:
    """Add a refusal. A build refuses a payload once; its later refusals replace the first."""
    short = clean_text(refusal.error.partition("\n")[0], limit=MAX_ERROR)
    kept = (each for each in known if each.build != refusal.build)
    return (*kept, msgspec.structs.replace(refusal, error=short))


def next_reader(builds: Sequence[str], refusals: Sequence[PayloadRefusal]) -> str | None:
    """The first of *builds* that has not refused the payload."""
    refused = {refusal.build for refusal in refusals}
    return next((build for build in builds if build not in refused), None)


def describe_refusals(refusals: Sequence[PayloadRefusal]) -> str:
    """One line that says which workers could not read a payload, and why."""
    return "; ".join(f"version {each.version} on worker {each.worker}: {each.error}" for each in refusals)
