"""Which keys of an input a run has to look at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.client.batches.function import UnitFunction
from holdfast.domain.batches.batch import UnitKey, unit_key
from holdfast.errors import InvalidInput
from holdfast.store import Store
from holdfast.store.batches.runs import BatchRun
from holdfast.worker.batches.bitmap import Bitmap

#: With so many units over, it is quicker to read which than to look each of them up.
WORTH_IT = 5000


def chosen(
    function: UnitFunction[..., Any], keys: Iterable[Any], *, only: Sequence[Any] | None, resume_from: Any
) -> set[UnitKey] | None:
    """The only keys to run, if not all.

    Raises:
        InvalidInput: One that is named is not there, as far as that can be known before the run.
    """
    picked = None if only is None else [key_of(function, value) for value in only]
    named = [*(picked or ()), *([] if resume_from is None else [key_of(function, resume_from)])]
    if named and isinstance(keys, range | Sequence):
        known = {unit_key(key) for key in keys} if not isinstance(keys, range) else None
        for key in named:
            there = key in known if known is not None else key.lstrip("-").isdecimal() and int(key) in keys
            if not there:
                raise InvalidInput(f"{key} is not among the keys")
    return None if picked is None else set(picked)


def keys_over(store: Store, opened: BatchRun, keys: Iterable[Any]) -> Bitmap | None:
    """Of a range that was run before, the keys that need not be looked at: read once, a bit for each."""
    if opened.created or not isinstance(keys, range) or store.batches.counters(opened.batch.id).over < WORTH_IT:
        return None
    return Bitmap(keys, store.batches.finished_keys(opened.batch.id))


def key_of(function: UnitFunction[..., Any], value: Any) -> UnitKey:
    """A key that came as a word from a line is that of the function's type."""
    is_number = function.key_type is int and isinstance(value, str) and value.lstrip("-").isdecimal()
    return unit_key(int(value) if is_number else value)
