"""One cell of the grid: python backtest.py SYMBOL THRESHOLD YEAR writes out/symbol=…/threshold=…/year=….json."""

from __future__ import annotations

import json
import sys
import time

from holdfast import files

#: This cell uses more memory than its cap.
GREEDY = ("BIG", "2021")


def main(symbol: str, threshold: str, year: str) -> None:
    print(f"backtest {symbol} {threshold} {year}", flush=True)
    path = files.path_for("out", symbol=symbol, threshold=threshold, year=year, suffix=".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    ballast = bytearray(400_000_000 if (symbol, year) == GREEDY else 1_000_000)
    time.sleep(0.2)  # the work
    gain = round((len(symbol) * float(threshold) * int(year)) % 7, 3)
    files.write(path, json.dumps({"symbol": symbol, "threshold": threshold, "year": year, "gain": gain}))
    print(f"gain {gain}, with {len(ballast):,} bytes", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
