"""Figures and their targets."""

from __future__ import annotations

from dataclasses import dataclass

from bench.runs import record


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


def print_ratios(found: list[Ratio]) -> None:
    """Print the figures, and keep those that have a target."""
    print(f"\n  {'ratio':46}{'value':>7}{'target':>9}")
    for ratio in found:
        target = "" if ratio.target is None else f"{'<=' if ratio.at_most else '>='} {ratio.target}"
        print(f"  {ratio.name:46}{ratio.value:>7.2f}{target:>9}  {ratio.verdict}".rstrip())
        if target:
            record(ratio.name, ratio.value, target)
