"""Merge all cells: python merge.py writes out/all.json."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast import files


def main() -> None:
    cells = [json.loads(path.read_text()) for path in sorted(Path("out").glob("symbol=*/threshold=*/year=*.json"))]
    files.write("out/all.json", json.dumps(cells, indent=1))
    print(f"merged {len(cells)} cells")


if __name__ == "__main__":
    main()
