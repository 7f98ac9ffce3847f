"""Check the number of cells: python validate.py COUNT fails if one is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(count: str) -> int:
    cells = json.loads(Path("out/all.json").read_text())
    print(f"{len(cells)} of {count} cells")
    return 0 if len(cells) == int(count) else 1


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
