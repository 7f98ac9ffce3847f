"""Payloads are checked against the published schema of their kind, without the application."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import typing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions, check_payload
from holdfast.errors import InvalidPayload


class Colour(enum.Enum):
    RED = "red"


class Address(msgspec.Struct):
    city: str
    zip: int | None = None


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: str


def handler(
    number: int = 0,
    share: float = 0.0,
    name: str = "",
    on: bool = False,
    maybe: int | None = None,
    many: list[int] = [],  # noqa: B006 - read from its annotation only
    pair: tuple[int, str] = (0, ""),
    by_name: dict[str, int] = {},  # noqa: B006
    colour: Colour = Colour.RED,
    mode: typing.Literal["a", "b"] = "a",
    at: dt.datetime | None = None,
    price: decimal.Decimal = decimal.Decimal(0),
    home: Address | None = None,
    pet: Cat | Dog | None = None,
    free: typing.Any = None,
) -> None: ...


KIND = Kind("all", handler, KindOptions())
GOOD = [
    {"number": 5, "share": 1, "name": "x", "on": True, "maybe": None, "many": [1, 2], "pair": [1, "x"]},
    {"by_name": {"a": 1}, "colour": "red", "mode": "b", "at": "2030-01-01T00:00:00Z"},
    {"price": "1.5", "home": {"city": "x"}, "pet": {"type": "Cat", "lives": 9}, "free": {"a": [1, None]}},
]
BAD = [
    {"number": "5"}, {"number": 5.0}, {"number": True}, {"share": "x"}, {"name": 5}, {"on": 1}, {"maybe": "x"},
    {"many": [1, "x"]}, {"many": 1}, {"pair": [1, 2]}, {"pair": [1, "x", 2]}, {"by_name": {"a": "x"}}, {"by_name": []},
    {"colour": "blue"}, {"mode": "c"}, {"at": 5.5}, {"home": {"zip": 1}}, {"home": {"city": 1}}, {"pet": {"type": "Cow"}},
]  # fmt: skip


@pytest.mark.parametrize("payload", GOOD)
def test_a_payload_that_fits_is_accepted(payload):
    check_payload(KIND.published(), payload)
    KIND.encode(payload)


@pytest.mark.parametrize("payload", BAD)
def test_a_payload_of_other_types_is_refused(payload):
    """V3: as the worker would refuse it; the error names the place, and no value."""
    with pytest.raises(InvalidPayload):
        KIND.encode(payload)
    with pytest.raises(InvalidPayload, match=next(iter(payload))):
        check_payload(KIND.published(), payload)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.sampled_from(["", "red", "a", "5"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["city", "type", "a"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(sorted(KIND.payload_type.__struct_fields__)), VALUES, max_size=3))
def test_nothing_is_refused_that_the_worker_accepts(payload):
    try:
        KIND.encode(payload)
    except InvalidPayload:
        return
    check_payload(KIND.published(), payload)
