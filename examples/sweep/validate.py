"""Is every cell there? python validate.py COUNT fails when one is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(count: str) -> int:
    found = json.loads(Path("out/all.json").read_text())
    print(f"{len(found)} of {count} cells")
    return 0 if len(found) == int(count) else 1


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
