"""Functions over units."""

from __future__ import annotations

import linecache

from holdfast.client.batches.function import UnitFunction
from holdfast.client.batches.options import UnitOptions


def test_a_function_whose_file_has_changed_has_no_code(tmp_path):
    """K82: the lines of a function may hold any text by now."""
    file = tmp_path / "mine.py"
    file.write_text("def unit(key: int) -> None:\n    return None\n")
    names = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    function = UnitFunction(names["unit"], UnitOptions(name="unit"))
    assert function.code is not None
    file.write_text("def unit('\nit's another text\n")
    linecache.checkcache(str(file))
    assert function.code is None
