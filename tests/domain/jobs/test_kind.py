"""Kinds: typed payloads, checked at the call."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest

from holdfast.domain.jobs.context import Context
from holdfast.domain.jobs.kind import Kind, suggest_kind
from holdfast.domain.jobs.kind_options import ExecutorName, KindOptions, dump_options, load_options
from holdfast.domain.jobs.new_job import KeyScope
from holdfast.domain.jobs.retry_curve import Curve
from holdfast.errors import InvalidInput, InvalidKind, InvalidPayload, InvalidText, PayloadTooLarge
from holdfast.testing import FakeContext


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Address:
    street: str
    number: int


def rich(
    when: datetime,
    who: uuid.UUID,
    price: Decimal,
    colour: Colour,
    home: Address,
    tags: list[str] = [],  # noqa: B006
) -> None: ...


def plain(n: int, word: str = "x", *, job: Context) -> None: ...


def make(function, **options) -> Kind:
    return Kind("k", function, KindOptions(**options))


def test_rich_types_make_the_round_trip():
    """Dataclasses, instants, UUIDs, decimals and enums come back as they went in."""
    payload = {
        "when": datetime(2030, 1, 1, tzinfo=UTC),
        "who": uuid.UUID(int=7),
        "price": Decimal("1.10"),
        "colour": Colour.RED,
        "home": Address("Elm", 3),
    }
    text, _ = make(rich).encode(payload)
    assert make(rich).decode(text) == {**payload, "tags": []}


@pytest.mark.parametrize(
    ("payload", "path"),
    [({"n": "1"}, "$.n"), ({}, "`n`"), ({"n": 1, "m": 2}, "'m'"), ({"n": 1, "word": None}, "$.word")],
)
def test_a_wrong_payload_is_refused_with_its_field(payload, path):
    """The message names the field that does not fit."""
    with pytest.raises(InvalidPayload) as caught:
        make(plain).encode(payload)
    assert path in str(caught.value)


def test_nested_fields_have_paths():
    """The path leads into dataclasses and lists."""

    def handler(homes: list[Address]) -> None: ...

    with pytest.raises(InvalidPayload, match=r"\$\.homes\[0\]\.number"):
        Kind("k", _resolved(handler, homes=list[Address]), KindOptions()).encode(
            {"homes": [{"street": "Elm", "number": "x"}]}
        )


def _resolved(function, **annotations):
    function.__annotations__ = {**annotations, "return": None}
    return function


def test_constraints_of_msgspec_are_kept():
    """An annotated constraint is checked like a type."""

    def handler(n) -> None: ...

    with pytest.raises(InvalidPayload, match=">= 1"):
        make(_resolved(handler, n=Annotated[int, msgspec.Meta(ge=1)])).encode({"n": 0})


def test_a_payload_has_a_largest_size():
    """At most 256 KiB, by default."""
    with pytest.raises(PayloadTooLarge):
        make(plain).encode({"n": 1, "word": "x" * 262_144})
    assert make(plain).encode({"n": 1, "word": "x" * 262_000})


@pytest.mark.parametrize("word", ["nul \0", "half \ud83d"])
def test_odd_text_is_refused(word):
    """NUL and half of a character have an error of their own."""
    with pytest.raises(InvalidText):
        make(plain).encode({"n": 1, "word": word})


def test_a_backslash_is_no_nul():
    r"""The six characters \u0000 are an ordinary text."""
    text, _ = make(plain).encode({"n": 1, "word": r"\u0000"})
    assert make(plain).decode(text)["word"] == r"\u0000"


@pytest.mark.parametrize("value", [object(), {1, 2}.__iter__(), float])
def test_values_that_are_not_json_are_refused(value):
    """Objects, iterators and types are no payload."""

    def handler(value) -> None: ...

    with pytest.raises(InvalidPayload):
        make(_resolved(handler, value=Any)).encode({"value": value})


def test_a_stored_payload_that_does_not_fit_any_more_is_refused_before_the_run():
    """What an older or broken writer stored cannot reach the handler."""
    for text in ('{"n": "x"}', "[]", "{", ""):
        with pytest.raises(InvalidPayload):
            make(plain).decode(text)


def test_the_context_is_not_part_of_the_payload():
    """A parameter annotated with Context is filled by the worker."""
    context = FakeContext()
    assert make(plain).arguments('{"n":1}', lambda: context) == {"n": 1, "word": "x", "job": context}
    with pytest.raises(InvalidPayload):
        make(plain).encode({"n": 1, "job": 5})


def test_a_call_is_bound_like_a_call():
    """Positional arguments take the names of the parameters."""
    assert make(plain).bind((1, "w"), {}) == {"n": 1, "word": "w"}
    with pytest.raises(InvalidPayload, match="at most 2"):
        make(plain).bind((1, "w", 3), {})
    with pytest.raises(InvalidPayload, match="two values"):
        make(plain).bind((1,), {"n": 2})


@pytest.mark.parametrize(
    "options",
    [{"max_attempts": 0}, {"max_crashes": 0}, {"unique": ("nope",)}, {"unique_scope": KeyScope.PERIOD}, {"queue": ""}],
)
def test_senseless_settings_are_refused(options):
    """At registration, not when the first job fails."""
    with pytest.raises(InvalidInput):
        make(plain, **options)


def test_handlers_that_no_payload_fits_are_refused():
    """Star parameters and annotations that lead nowhere."""

    def starred(*names: str) -> None: ...

    def unresolved(n) -> None: ...

    unresolved.__annotations__ = {"n": "Nowhere"}
    for handler in (starred, unresolved):
        with pytest.raises(InvalidKind):
            make(handler)


def test_options_survive_the_store():
    """What one process publishes, another reads as it was."""
    options = KindOptions(
        queue="q",
        priority=-3,
        retry=Curve(base=1),
        unique=("n",),
        unique_scope=KeyScope.PERIOD,
        unique_period=timedelta(hours=1),
    )
    assert load_options(dump_options(options)) == options


def test_the_key_is_formed_from_the_named_fields():
    """Equal values form equal keys, whether given or defaulted."""
    kind = make(plain, unique=("word", "n"))
    assert kind.encode({"n": 1})[1] == kind.encode({"word": "x", "n": 1})[1] == '["x",1]'


def test_a_near_miss_is_suggested():
    """A typing mistake is answered with the right name."""
    assert suggest_kind("mial", ["mail", "import"]) == "Did you mean 'mail'?"
    assert "No kind" in suggest_kind("x", [])


async def coroutine() -> None: ...


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (plain, {"executor": ExecutorName.ASYNC}),
        (coroutine, {"executor": ExecutorName.THREAD}),
        (plain, {"memory": 1 << 20}),
    ],
)
def test_an_executor_has_to_fit_its_handler(function, options):
    """Coroutines run on the loop, functions in threads, and only processes have a memory cap."""
    with pytest.raises(InvalidKind):
        make(function, **options)


def test_executors_are_chosen_by_the_handler():
    assert make(plain).executor is ExecutorName.THREAD
    assert make(coroutine).executor is ExecutorName.ASYNC
    assert make(coroutine, executor=ExecutorName.PROCESS).executor is ExecutorName.PROCESS


def test_a_payload_that_is_nested_too_deeply_is_refused():
    """100 levels are enough for everybody; many lists beside each other are no matter."""

    def handler(value: list) -> None: ...

    def nested(levels):
        value = []
        for _ in range(levels - 2):  # the payload itself is one
            value = [value]
        return {"value": value}

    kind = make(handler)
    assert kind.encode(nested(100))
    assert kind.encode({"value": [[] for _ in range(500)]})
    for levels in (101, 900):
        with pytest.raises(InvalidPayload, match="nested more than 100 levels"):
            kind.encode(nested(levels))


def bulk(text: str = "", value: Any = 0) -> None:
    """A handler for payloads of many sorts."""


@pytest.mark.parametrize(
    "payloads",
    [
        [],
        [{"text": "a\nb \u2028"}, {"value": 1}, {}],
        [{"value": None}, {"value": [None]}],
        [{"value": "null"}, {"text": "\\u0000"}],
        [{"value": msgspec.Raw(b'{"a":\n1}')}, {}],
        [{"value": [{"a": [1, 2] * 200}]}],
        [{"text": "x" * 300}, {"value": {"deep": [[[[1]]]]}}],
    ],
)
def test_many_payloads_are_encoded_as_each_one_is(payloads):
    """One call for all of them gives the same texts."""
    kind = Kind("bulk", bulk, KindOptions())
    assert kind.encode_many(payloads) == [kind.encode(payload)[0] for payload in payloads]


@pytest.mark.parametrize(
    ("payload", "error", "message"),
    [
        ({"text": 1}, InvalidPayload, "does not fit"),
        ({"txet": "a"}, InvalidPayload, "txet"),
        ({"value": float("nan")}, InvalidPayload, "NaN"),
        ({"value": object()}, InvalidPayload, "cannot be written as JSON"),
        ({"value": msgspec.Raw(b"no json")}, InvalidPayload, "not JSON"),
        ({"text": "\0"}, InvalidText, "NUL"),
        ({"text": "\ud800"}, InvalidText, "surrogate"),
        ({"text": "x" * 2000}, PayloadTooLarge, "2,011 bytes"),
    ],
)
def test_one_bad_payload_of_many_is_named(payload, error, message):
    """The error is the one of a single payload."""
    kind = Kind("bulk", bulk, KindOptions())
    with pytest.raises(error, match=message):
        kind.encode_many([{}, payload, {}], limit=1000)


def test_a_payload_of_many_that_is_too_deep_is_refused():
    """The limit is that of a single payload."""
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    kind = Kind("bulk", bulk, KindOptions())
    with pytest.raises(InvalidPayload, match="levels deep"):
        kind.encode_many([{}, {"value": deep}])
