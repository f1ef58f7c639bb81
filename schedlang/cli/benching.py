"""What the kinds of `schedlang bench` share: which schedules are timed, and how the result is shown."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby, product
from statistics import median
from typing import TYPE_CHECKING

from schedlang.cli.common import bad_option
from schedlang.cli.executing import in_bytes, short_time
from schedlang.loading import load_table, parameters_of

if TYPE_CHECKING:
    from schedlang.expand import Value
    from schedlang.ir.table import OpTable
    from schedlang.running.pairs import Row

SHIPPED = ("allreduce/ring.sched", "allreduce/halving_doubling.sched", "allreduce/all_pairs.sched")
"""What is timed where nothing is named: these are for any number of ranks."""


def tables(schedules: Sequence[str], ranks: int, values: dict[str, list[Value]], op: str | None, max_ops: int | None,
           known: Collection[str] | None) -> Iterator[tuple[str, OpTable]]:
    """The tables to be timed, each with its title: every schedule with every value of the parameters that it has.
    ``known``: the collectives that there is something to compare with; None: all."""
    from schedlang.ir.digest import title
    from schedlang.ready import is_ready
    from schedlang.schedule import Schedule

    targets, unused = schedules or tuple(f"schedlang:{file}" for file in SHIPPED), set(values)
    for target in targets:
        names = [] if is_ready(target) else [name for name in values if name in parameters_of(target)]
        unused -= set(names)
        for choice in product(*(values[name] for name in names)):
            table, _ = load_table(target, ranks=ranks, params=dict(zip(names, choice, strict=True)), op=op,
                                  max_ops=max_ops)
            if table.ranks != ranks:
                raise bad_option(f"{target} is for {table.ranks} ranks, not {ranks}",
                                 help=f"give --ranks {table.ranks}")
            if known is not None and table.collective.name not in known:
                raise bad_option(f"{target}: there is no built-in to compare a schedule for {table.collective.name} "
                                 "with", help=f"there is one for {', '.join(known)}")
            Schedule(table).require_right()
            yield title(table), table
    if unused:
        raise bad_option(f"-p {min(unused)}: no schedule here has that parameter")


def kind(entry: tuple[str, OpTable]) -> tuple[str, str, int]:
    """What schedules must have in common to be compared with one another."""
    c = entry[1].collective
    return c.name, c.op or "", c.root or 0


def fitting(table: OpTable, elements: int) -> int:
    """About so many elements, and as many as the collective can have: at least one, or one for each rank."""
    from schedlang.ops import COLLECTIVES

    unit = table.ranks if COLLECTIVES[table.collective.name].family == "blocked" else 1
    return max(1, elements // unit) * unit


def row(bench: str, against: str, table: OpTable, title: str, dtype: str, elements: int, times: Sequence[float],
        others: Sequence[float]) -> Row:
    """A line of the result: ``times`` of a table, ``others`` of what it is compared with, round by round."""
    from schedlang.running.bandwidth import bus_factor
    from schedlang.running.dtypes import named
    from schedlang.running.pairs import Row, ratio

    c, size = table.collective, elements * named(dtype).numpy.itemsize
    factor, algbw = bus_factor(c.name, table.ranks), size / median(times)
    busbw = None if factor is None else algbw * float(factor)
    return Row(bench, c.name, c.op, dtype, table.ranks, size, title, against, len(times), median(times), median(others),
               *ratio(times, others), algbw, busbw)


def as_text(rows: Sequence[Row], beside: str, prefix: str = "") -> str:
    """Rows for people; ``beside``: what they are compared with, in a word; ``prefix``: of its full name."""
    lines: list[str] = []
    for _, group in groupby(rows, key=lambda row: (row.collective, row.op, row.dtype, row.against)):
        some = list(group)
        first, wide = some[0], max(len(row.what) for row in some)
        op = f"({first.op})" if first.op else ""
        lines += [f"{first.collective}{op} on {first.ranks} ranks, {first.dtype}, beside {prefix}{first.against}",
                  f"  {'size':>9}  {'schedule':<{wide}}  {'time':>8}  {beside:>8}  {'busbw':>10}  ratio of times"]
        for row in some:
            bandwidth = "n/a" if row.busbw is None else f"{row.busbw / 1e9:.3g} GB/s"
            compared = f"{row.ratio:.2f} ({row.ratio_low:.2f} to {row.ratio_high:.2f}, {row.pairs} pairs) {row.verdict}"
            lines.append(f"  {in_bytes(row.bytes):>9}  {row.what:<{wide}}  {short_time(row.seconds):>8}  "
                         f"{short_time(row.against_seconds):>8}  {bandwidth:>10}  {compared}")
    return "\n".join(lines) + "\n"
