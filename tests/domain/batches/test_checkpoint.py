"""E9.3: the checkpoint interval as people write it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.batches.checkpoint import CheckpointInterval, checkpoint_interval
from holdfast.errors import InvalidInput


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (None, (50, 1.0)),
        ("auto", (50, 1.0, True)),
        ("each", (1, 1.0)),
        (200, (200, 1.0)),
        ("200", (200, 1.0)),
        ("5s", (1000, 5.0)),
        ("200ms", (1000, 0.2)),
        (timedelta(seconds=2), (1000, 2.0)),
    ],
)
def test_each_unit_a_number_of_units_or_a_time(written, expected):
    assert checkpoint_interval(written) == CheckpointInterval(*expected)


@pytest.mark.parametrize("written", ["often", "0", 0, -1, 1001, "2m", "1ms", 1.5, ""])
def test_other_intervals_are_refused(written):
    with pytest.raises(InvalidInput):
        checkpoint_interval(written)


@pytest.mark.parametrize("written", ["often", "", 1.5])
def test_the_error_names_what_can_be_written(written):
    with pytest.raises(InvalidInput, match="not a checkpoint") as caught:
        checkpoint_interval(written)
    assert '"each", "auto", a number of units' in caught.value.hint
