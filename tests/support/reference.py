"""The generator of docs/reference, which is no package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

HERE = Path(__file__).parents[2] / "docs" / "reference"

_spec = importlib.util.spec_from_file_location("generate", HERE / "generate.py")
assert _spec is not None
assert _spec.loader is not None
generate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate)
