"""``schedlang bench``: schedules timed side by side with what they are to replace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, product
from typing import TYPE_CHECKING

import click

from schedlang.cli.common import EXIT_CLEAN, bad_option, named_dtype, one_rank_count, output_file, put, value_options
from schedlang.cli.common import parameters as value_lists
from schedlang.cli.executing import OnRanks, in_bytes, progress_bar, short_time, within_memory
from schedlang.loading import load_table, parameters_of

if TYPE_CHECKING:
    from schedlang.backends.torch.job import Contest
    from schedlang.expand import Value
    from schedlang.ir.table import OpTable
    from schedlang.running.pairs import Row

SHIPPED = ("allreduce/ring.sched", "allreduce/halving_doubling.sched", "allreduce/all_pairs.sched")
"""What is timed where nothing is named: these are for any number of ranks."""


@click.group()
def command() -> None:
    """Time schedules against what they are to replace."""


@command.command("torch", cls=OnRanks)
@click.argument("schedules", metavar="[FILE[::NAME]]...", nargs=-1)
@click.option("--ranks", metavar="N", help="How many ranks (default: those of torchrun, else 4).")
@value_options
@click.option("--sizes", metavar="BYTES,...", default="4KiB,64KiB,1MiB,16MiB,64MiB", show_default=True,
              help="Bytes of the buffer on each rank (the long one, where it has a block for each rank).")
@click.option("--dtype", "dtype_name", metavar="DTYPE", default="float32", show_default=True, callback=named_dtype,
              help="As for run.")
@click.option("--pairs", type=click.IntRange(min=2), metavar="N", default=50, show_default=True,
              help="How often each is timed.")
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), metavar="S", default=30.0, show_default=True,
              help="Time for a size; where it is not enough there are fewer pairs, but 7.")
@click.option("--device", metavar="DEVICE", help="As for run: cpu or cuda.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="As for run.")
@click.option("--format", "style", type=click.Choice(["text", "csv"]), default="text", show_default=True,
              help="How to show the result.")
@click.option("-o", "--output", metavar="FILE", help="Write the result to FILE instead of the standard output.")
def against_torch(schedules: tuple[str, ...], ranks: str | None, parameters: tuple[str, ...], op: str | None,
                  max_ops: int | None, sizes: str, dtype_name: str, pairs: int, seconds: float, device: str | None,
                  timeout: float | None, style: str, output: str | None) -> int:
    """Time schedules against the collectives of torch.distributed.

    Each runs on the same ranks, processes on this machine or those of torchrun, in rounds: the built-in and then every
    schedule once, each round beginning with another. Shown are medians over the rounds, of the rank that took longest,
    the median of the ratios to the built-in, and its bootstrap 95 % interval. Without FILE it times some shipped
    all-reduces. -p channels=1,2 takes each value in turn, for the schedules that have such a parameter.
    """
    from schedlang.backend import find
    from schedlang.backends.torch import backend
    from schedlang.backends.torch.job import Contest
    from schedlang.running.dtypes import named, require_defined
    from schedlang.running.inputs import bytes_of
    from schedlang.running.pairs import as_csv

    output = output_file(output)
    dtype, wanted = named(dtype_name), [bytes_of(text) for text in sizes.split(",")]
    find(backend)
    runner = backend.on(device=device, timeout=timeout)
    place = runner.place()
    contests = []
    with within_memory(), progress_bar() as progress:
        number = one_rank_count(ranks) or (4 if place is None else place.size)
        tables = sorted(_tables(schedules, number, value_lists(parameters), op, max_ops), key=_kind)
        for (_, operator, _), group in groupby(tables, key=_kind):
            if operator:
                require_defined(operator, dtype)
            some = list(group)
            fitting = [_fitting(some[0][1], size // dtype.numpy.itemsize) for size in wanted]
            contests.append(Contest(some, fitting, dtype.name, pairs, seconds))
        times = runner.on_ranks("schedlang.backends.torch.contest:contests", (contests,), number, tables[0][1].name,
                                progress)[0]
    if place is not None and place.rank:
        return EXIT_CLEAN
    rows = [row for what, found in zip(contests, times, strict=True) for row in _rows(what, found)]
    put(as_csv(rows) if style == "csv" else _text(rows), output)
    return EXIT_CLEAN


def _tables(schedules: Sequence[str], ranks: int, values: dict[str, list[Value]], op: str | None,
            max_ops: int | None) -> Iterator[tuple[str, OpTable]]:
    """The tables to be timed, each with its title: every schedule with every value of the parameters that it has."""
    from schedlang.backends.torch.job import BUILT_IN
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
            if table.collective.name not in BUILT_IN:
                raise bad_option(f"{target}: there is no built-in to compare a schedule for {table.collective.name} "
                                 "with", help=f"there is one for {', '.join(BUILT_IN)}")
            Schedule(table).require_right()
            yield title(table), table
    if unused:
        raise bad_option(f"-p {min(unused)}: no schedule here has that parameter")


def _kind(entry: tuple[str, OpTable]) -> tuple[str, str, int]:
    """What schedules must have in common to be compared with one another."""
    c = entry[1].collective
    return c.name, c.op or "", c.root or 0


def _fitting(table: OpTable, elements: int) -> int:
    """About so many elements, and as many as the collective can have: at least one, or one for each rank."""
    from schedlang.ops import COLLECTIVES

    unit = table.ranks if COLLECTIVES[table.collective.name].family == "blocked" else 1
    return max(1, elements // unit) * unit


def _rows(what: Contest, found: list[list[list[float]]]) -> Iterator[Row]:
    from statistics import median

    from schedlang.backends.torch.job import BUILT_IN
    from schedlang.running.bandwidth import bus_factor
    from schedlang.running.dtypes import named
    from schedlang.running.pairs import Row, ratio

    c, ranks = what.tables[0][1].collective, what.tables[0][1].ranks
    factor = bus_factor(c.name, ranks)
    for elements, (built_in, *times) in zip(what.sizes, found, strict=True):
        size = elements * named(what.dtype).numpy.itemsize
        for (name, _), mine in zip(what.tables, times, strict=True):
            algbw = size / median(mine)
            busbw = None if factor is None else algbw * float(factor)
            yield Row("torch", c.name, c.op, what.dtype, ranks, size, name, BUILT_IN[c.name], len(mine), median(mine),
                      median(built_in), *ratio(mine, built_in), algbw, busbw)


def _text(rows: Sequence[Row]) -> str:
    lines: list[str] = []
    for _, group in groupby(rows, key=lambda row: (row.collective, row.op, row.dtype)):
        some = list(group)
        first, wide = some[0], max(len(row.what) for row in some)
        op = f"({first.op})" if first.op else ""
        lines += [f"{first.collective}{op} on {first.ranks} ranks, {first.dtype}, beside "
                  f"torch.distributed.{first.against}",
                  f"  {'size':>9}  {'schedule':<{wide}}  {'time':>8}  {'built-in':>8}  {'busbw':>10}  ratio of times"]
        for row in some:
            bandwidth = "n/a" if row.busbw is None else f"{row.busbw / 1e9:.3g} GB/s"
            compared = f"{row.ratio:.2f} ({row.ratio_low:.2f} to {row.ratio_high:.2f}, {row.pairs} pairs) {row.verdict}"
            lines.append(f"  {in_bytes(row.bytes):>9}  {row.what:<{wide}}  {short_time(row.seconds):>8}  "
                         f"{short_time(row.against_seconds):>8}  {bandwidth:>10}  {compared}")
    return "\n".join(lines) + "\n"
