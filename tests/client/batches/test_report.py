"""Lines of units in NDJSON."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.client.batches.report import RunReport, unit_line
from holdfast.domain.batches.batch import summarise
from holdfast.domain.batches.done_units import DoneUnits
from holdfast.domain.batches.unit import Counters, unit_key
from holdfast.output.printer import Format, Output, json_line


@pytest.mark.parametrize("durations_ms", [[0, 0, 0], [0, 7, 7], [7, None, 7]])
@pytest.mark.parametrize("places", [[0, 1, 2], [2, 0, 1]])
def test_units_by_column_have_the_lines_of_their_outcomes(
    durations_ms: list[int | None], places: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    keys = [unit_key(5), unit_key('a"b\\ü\n'), unit_key([1, "x"])]
    units = DoneUnits(keys, places, durations_ms)
    batch: Any = None  # the lines do not name it
    RunReport(Output(Format.NDJSON), batch, total=3, every=0, created=True).lines(units)
    *lines, checkpoint = capsys.readouterr().out.splitlines()
    assert lines == [json_line(unit_line(unit)) for unit in units]
    assert checkpoint == '{"_meta":{"checkpoint":3}}'


def test_no_units_have_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    batch: Any = None  # the lines do not name it
    RunReport(Output(Format.NDJSON), batch, total=3, every=0, created=True).lines([])
    assert not capsys.readouterr().out


def test_the_summary_names_the_largest_labels() -> None:
    """K93: with a label for each unit it was a line of 3 MB."""
    labels = {f"label {n:03}": n for n in range(1, 101)}
    counted = Counters(done=5050, labels=labels, other_labels=9000)
    summary = summarise(counted, 5050, None)
    shown, others = summary.largest_labels()
    assert [*shown.values()] == [*range(100, 80, -1)]
    assert others == 9080, "K93 is broken"
    few = summarise(Counters(done=3, labels={"a": 1, "b": 2}), 3, None)
    assert few.largest_labels() == ({"a": 1, "b": 2}, 0)
