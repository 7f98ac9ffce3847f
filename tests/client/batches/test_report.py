"""Lines of units in NDJSON."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.client.batches.report import RunReport, unit_line
from holdfast.domain.batches.done_units import DoneUnits
from holdfast.domain.batches.unit import unit_key
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
