"""JSON values of jobs (K40)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from holdfast.domain.batches.unit import unit_key
from holdfast.domain.jobs.json_values import to_json
from holdfast.errors import InvalidPayload


@dataclass
class Item:
    price: float | None


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"items": [1, {"price": math.nan}]}, "items[1].price is NaN"),
        ({"a": None, "b": math.inf}, "b is infinity"),
        ([Item(None), Item(-math.inf)], "[1].price is -infinity"),
        (math.nan, "it is NaN"),
    ],
)
def test_numbers_that_json_does_not_have_are_refused_with_their_path(value, where):
    """K40: the encoder writes them as null."""
    with pytest.raises(InvalidPayload, match="the payload cannot be stored") as refused:
        to_json(value, label="the payload")
    assert str(refused.value).endswith(where)


def test_none_stays_null():
    assert to_json({"a": None, "b": "null"}, label="the payload") == b'{"a":null,"b":"null"}'


def test_a_key_of_a_unit_is_not_nan():
    """K40: all of them would be the same unit, null."""
    with pytest.raises(InvalidPayload, match="NaN"):
        unit_key(math.nan)
    assert unit_key(None) == "null"
