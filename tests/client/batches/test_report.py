"""Lines of units in NDJSON."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.client.batches.report import RunReport, encode_unit, unit_line
from holdfast.domain.batches.done_units import DoneUnits
from holdfast.domain.batches.unit import UnitOutcome, UnitState, unit_key
from holdfast.output.printer import Format, Output, json_line


@pytest.mark.parametrize("key", [5, 'a"b\\ü\n', [1, "x"], 2.5])
@pytest.mark.parametrize("state", [UnitState.DONE, UnitState.SKIPPED])
@pytest.mark.parametrize("duration_ms", [None, 0, 12])
def test_a_unit_without_notes_has_the_same_line_as_the_encoder_writes(
    key: object, state: UnitState, duration_ms: int | None
) -> None:
    unit = UnitOutcome(key=unit_key(key), position=1, state=state, attempts=2, duration_ms=duration_ms)
    assert encode_unit(unit) == json_line(unit_line(unit))


@pytest.mark.parametrize("note", [{"label": "new"}, {"warning": "w"}, {"data": "[1]"}, {"error": "e"}])
def test_a_unit_with_a_note_has_it_in_its_line(note: dict[str, str]) -> None:
    unit = UnitOutcome(key=unit_key(5), position=1, state=UnitState.DONE, **note)  # type: ignore[arg-type]
    assert encode_unit(unit) == json_line(unit_line(unit))
    assert f'"{next(iter(note))}":' in encode_unit(unit)


@pytest.mark.parametrize("durations_ms", [[0, 0], [0, 7], [7, 7]])
def test_units_by_column_have_the_lines_of_their_outcomes(
    durations_ms: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    units = DoneUnits(["1", '"a"'], [0, 1], durations_ms)
    batch: Any = None  # the lines do not name it
    RunReport(Output(Format.NDJSON), batch, total=2, every=0, created=True).lines(units)
    assert capsys.readouterr().out.splitlines()[:-1] == [*map(encode_unit, units)]
