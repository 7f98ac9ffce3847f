"""From medians to a table, ratios and their targets."""

from __future__ import annotations

from dataclasses import dataclass

STEPS = ("one", "bulk", "settle 1", "settle 100", "settle 1000")
BATCHES = ("settle 100", "settle 1000")

Rates = dict[str, dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """One number that counts. Without a target it is only told."""

    name: str
    value: float
    target: float | None = None
    at_most: bool = False

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return "ok" if (self.value <= self.target if self.at_most else self.value >= self.target) else "MISSED"


def ratios(rates: Rates, peer: str) -> list[Ratio]:
    """Holdfast against the raw limit, against *peer*, and against itself among many jobs."""
    found = [_against(rates, "raw", step, 0.6 if step in BATCHES else None) for step in ("one", "settle 1", *BATCHES)]
    found.append(_against(rates, "raw", "bulk", 0.5))
    shared = [step for step in STEPS if step in rates.get(peer, {})]
    found += [_against(rates, peer, step, 1.5 if step == "bulk" else None) for step in shared]
    for crowd in ("finished", "waiting"):
        for system, target in (("holdfast", 0.9), ("raw", None)):
            found += [_among(rates, system, crowd, step, target if step in BATCHES else None) for step in STEPS]
        found += [_against(rates, f"raw, {crowd}", step, None, ours=f"holdfast, {crowd}") for step in BATCHES]
    return [ratio for ratio in found if ratio is not None]


def _against(rates: Rates, other: str, step: str, target: float | None, *, ours: str = "holdfast") -> Ratio | None:
    if ours not in rates or other not in rates:
        return None
    return Ratio(name=f"{step}: {ours} / {other}", value=rates[ours][step] / rates[other][step], target=target)


def _among(rates: Rates, system: str, crowd: str, step: str, target: float | None) -> Ratio | None:
    return _against(rates, system, step, target, ours=f"{system}, {crowd}")


def print_report(title: str, rates: Rates, costs: dict[str, dict[str, float]], found: list[Ratio]) -> None:
    print(f"\n{title}: jobs per second, medians")
    print(
        f"  {'system':22}"
        + "".join(f"{step:>13}" for step in STEPS)
        + (f"{'WAL B/job':>11}{'dead/job':>10}" if costs else "")
    )
    for system, steps in rates.items():
        cells = "".join(f"{steps[step]:>13,.0f}" if step in steps else f"{'-':>13}" for step in STEPS)
        cost = costs.get(system)
        print(f"  {system:22}{cells}" + (f"{cost['wal_bytes']:>11,.0f}{cost['dead_rows']:>10.2f}" if cost else ""))
    print_ratios(found)


def print_ratios(found: list[Ratio]) -> None:
    print(f"\n  {'ratio':46}{'value':>7}{'target':>9}")
    for ratio in found:
        target = "" if ratio.target is None else f"{'<=' if ratio.at_most else '>='} {ratio.target}"
        print(f"  {ratio.name:46}{ratio.value:>7.2f}{target:>9}  {ratio.verdict}".rstrip())
