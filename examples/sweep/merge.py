"""All cells into one file: python merge.py writes out/all.json."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast import files


def main() -> None:
    found = [json.loads(path.read_text()) for path in sorted(Path("out").glob("symbol=*/threshold=*/year=*.json"))]
    files.write("out/all.json", json.dumps(found, indent=1))
    print(f"{len(found)} cells are merged")


if __name__ == "__main__":
    main()
