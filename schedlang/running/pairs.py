"""Two things timed side by side, again and again: how much longer one takes, and how sure that is."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

SAMPLES = 2000
"""How often pairs are drawn anew for an interval."""


@dataclass(frozen=True)
class Row:
    """A line of what `schedlang bench` finds, of whatever kind; the columns of its CSV form, in this order.

    ``seconds`` and ``against_seconds``: medians of ``what`` and of what it is ``against``, over ``pairs`` in which both
    ran one after the other. ``ratio``: the median of the ratios of the pairs, below 1 where ``what`` is faster;
    ``ratio_low`` and ``ratio_high``: its bootstrap 95 % interval. ``algbw`` and ``busbw``: bytes a second of ``what``,
    by its median, as nccl-tests defines them; None where they mean nothing.
    """

    bench: str
    collective: str
    op: str | None
    dtype: str
    ranks: int
    bytes: int
    what: str
    against: str
    pairs: int
    seconds: float
    against_seconds: float
    ratio: float
    ratio_low: float
    ratio_high: float
    algbw: float | None
    busbw: float | None

    @property
    def verdict(self) -> str:
        """``faster`` or ``slower`` where the whole interval says so, else ``undecided``."""
        return "faster" if self.ratio_high < 1 else "slower" if self.ratio_low > 1 else "undecided"


def ratio(times: Sequence[float], against: Sequence[float]) -> tuple[float, float, float]:
    """The median of the ratios of pairs, and the ends of its bootstrap 95 % interval; the same for the same times."""
    ratios = np.asarray(times) / np.asarray(against)
    drawn = np.random.default_rng(0).integers(0, len(ratios), (SAMPLES, len(ratios)))
    low, high = np.quantile(np.median(ratios[drawn], axis=1), [0.025, 0.975])
    return float(np.median(ratios)), float(low), float(high)


def as_csv(rows: Iterable[Row]) -> str:
    """Rows with a line of their columns' names; what is None is empty."""
    names, out = [f.name for f in fields(Row)], io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([getattr(row, name) for name in names] for row in rows)
    return out.getvalue()
