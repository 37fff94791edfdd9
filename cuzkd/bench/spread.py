"""Of a few numbers: median, quartiles, extremes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    median: float
    low: float  # quartiles
    high: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Two numbers at least."""
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, min(values), max(values))

    @property
    def width(self) -> float:
        """The distance between the quartiles."""
        return self.high - self.low

    def quartiles(self, form: str = ".1f", unit: float = 1e3) -> str:
        """For people: "9.8 to 10.3", in milliseconds if the numbers are seconds."""
        return f"{unit * self.low:{form}} to {unit * self.high:{form}}"
