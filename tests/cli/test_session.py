"""The session of a command line: modules of the user that cannot be imported."""

from __future__ import annotations

import sys

import pytest

from holdfast.cli.session import load_app, load_object
from holdfast.errors import ConfigurationError

APP = "import holdfast\napp = holdfast.Holdfast('sqlite://')\n"
#: Modules, the text of the error, and the line of the module that its hint names.
BROKEN = {
    "timeout": (APP + "@app.unit(timeout='1s')\ndef work(n: int): pass\n", "'work' cannot be stopped by a timeout", 3),
    "no key": (APP + "\n@app.unit()\ndef work(): pass\n", "'work' has no parameter for the key", 4),
    "schedule": (APP + "@app.schedule('61 * * * *')\n@app.job()\ndef a(): pass\n", "'61' is not a valid minute", 3),
    "error": ("import json\njson.loads('{')\n", "JSONDecodeError: Expecting property name", 2),
    "several lines": ("raise ValueError('the first\\nthe second')\n", "ValueError: the first", 1),
    "note": ("e = ValueError('a')\ne.add_note('a note')\nraise e\n", "ValueError: a", 3),
    "no text": ("raise KeyError\n", "KeyError", 1),
    "text that raises": (
        "class E(Exception):\n    def __str__(self):\n        return 1 / 0\nraise E\n",
        "the module 'broken_here' cannot be imported: E",
        4,
    ),
    "exit": ("import sys\n\nsys.exit('no key is set')\n", "SystemExit: no key is set", 3),
    "syntax": ("a = 1\nb = = 2\n", "SyntaxError: invalid syntax", 2),
    "missing module": ("\nimport nowhere_at_all\n", "No module named 'nowhere_at_all'", 2),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("load", [lambda: load_app("broken_here:app"), lambda: load_object("broken_here:work")])
def test_an_import_error_is_told_with_the_line_of_the_user(tmp_path, monkeypatch, name, load):
    """D12: its own message and hint, and the last frame of the user's own files."""
    code, text, line = BROKEN[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "broken_here", raising=False)
    file = tmp_path / "broken_here.py"
    file.write_text(code)
    with pytest.raises(ConfigurationError) as error:
        load()
    assert text in error.value.message
    assert "\n" not in error.value.message
    assert error.value.hint.endswith(f"See {file}, line {line}.")


def test_the_hint_of_the_error_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "broken_hint.py").write_text(BROKEN["timeout"][0])
    with pytest.raises(ConfigurationError) as error:
        load_app("broken_hint:app")
    assert error.value.hint.startswith("Give it a parameter unit: holdfast.Unit and call unit.check()")
