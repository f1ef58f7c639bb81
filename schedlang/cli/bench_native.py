"""``schedlang bench native``: schedules as kernels of the native back end."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import click

from schedlang.cli.benching import as_text, fitting, kind, row, tables
from schedlang.cli.common import EXIT_CLEAN, bad_option, named_dtype, one_rank_count, output_file, put, value_options
from schedlang.cli.common import parameters as value_lists
from schedlang.cli.executing import OnRanks, progress_bar, within_memory

if TYPE_CHECKING:
    from schedlang.ir.table import OpTable
    from schedlang.running.pairs import Row


@click.command("native", cls=OnRanks)
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
@click.option("--threads", is_flag=True, help="Ranks are threads of one process, beside copying as many bytes.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="As for run.")
@click.option("--format", "style", type=click.Choice(["text", "csv"]), default="text", show_default=True,
              help="How to show the result.")
@click.option("-o", "--output", metavar="FILE", help="Write the result to FILE instead of the standard output.")
def command(schedules: tuple[str, ...], ranks: str | None, parameters: tuple[str, ...], op: str | None,
            max_ops: int | None, sizes: str, dtype_name: str, pairs: int, seconds: float, threads: bool,
            timeout: float | None, style: str, output: str | None) -> int:
    """Time schedules as kernels on this machine's processors.

    Ranks are processes, in turn with the collective of torch.distributed over Gloo: each schedule on tensors in memory
    that all ranks share (as those of schedlang.torch.empty_shared are), and on ordinary ones. With --threads they are
    threads of one process, in turn with copying half as many bytes as the schedule reads and writes, on all processors:
    a ratio of 1 is what the memory allows. What is shown is as for `bench torch`.
    """
    from schedlang.backend import find
    from schedlang.backends.native import backend
    from schedlang.backends.torch.job import BUILT_IN
    from schedlang.running.dtypes import named, require_defined
    from schedlang.running.inputs import bytes_of
    from schedlang.running.pairs import as_csv

    output = output_file(output)
    dtype, wanted = named(dtype_name), [bytes_of(text) for text in sizes.split(",")]
    find(backend)
    place = None if threads else backend.place()
    known = None if threads else BUILT_IN
    with within_memory():
        number = one_rank_count(ranks) or (4 if place is None else place.size)
        found = sorted(tables(schedules, number, value_lists(parameters), op, max_ops, known), key=kind)
        for _, table in found:
            if table.operator:
                require_defined(table.operator, dtype)
        run = _in_one_process if threads else _beside_torch
        rows = run(found, wanted, dtype.name, pairs, seconds, timeout)
    if rows is None:
        return EXIT_CLEAN
    shown = as_text(rows, "copying") if threads else as_text(rows, "built-in", "torch.distributed.")
    put(as_csv(rows) if style == "csv" else shown, output)
    return EXIT_CLEAN


def _in_one_process(found: list[tuple[str, OpTable]], wanted: list[int], dtype: str, pairs: int, seconds: float,
                    timeout: float | None) -> list[Row]:
    """Schedules beside copying."""
    from schedlang.backends.native import backend
    from schedlang.backends.native.contest import contest
    from schedlang.running.dtypes import named

    rows, options = [], backend.on(timeout=timeout)
    for _, group in groupby(found, key=kind):
        some = list(group)
        if some[0][1].collective.name in ("barrier", "custom") or some[0][1].collective.counts is not None:
            raise bad_option(f"{some[0][0]}: a {some[0][1].collective.name} has no size in bytes to be timed at",
                             help="time a collective without counts")
        for size in wanted:
            elements = fitting(some[0][1], size // named(dtype).numpy.itemsize)
            times = contest([table for _, table in some], elements, dtype, rounds=pairs, seconds=seconds,
                            slice_bytes=options.options.slice_bytes, blocks=options.options.blocks,
                            timeout=options.timeout)
            rows += [row("native", "copy", table, title, dtype, elements, mine, copied)
                     for (title, table), (mine, copied) in zip(some, times, strict=True)]
    return rows


def _beside_torch(found: list[tuple[str, OpTable]], wanted: list[int], dtype: str, pairs: int, seconds: float,
                  timeout: float | None) -> list[Row] | None:
    """Schedules beside the built-in; None on other ranks than the first."""
    from schedlang.backend import find
    from schedlang.backends.native.beside import WAYS
    from schedlang.backends.torch import backend
    from schedlang.backends.torch.job import BUILT_IN, Contest
    from schedlang.running.dtypes import named

    find(backend)
    runner = backend.on(device="cpu", timeout=timeout)
    place, contests = runner.place(), []
    for _, group in groupby(found, key=kind):
        some = list(group)
        elements = [fitting(some[0][1], size // named(dtype).numpy.itemsize) for size in wanted]
        contests.append(Contest(some, elements, dtype, pairs, seconds))
    with progress_bar() as progress:
        times = runner.on_ranks("schedlang.backends.native.beside:contests", (contests,), found[0][1].ranks,
                                found[0][1].name, progress)[0]
    if place is not None and place.rank:
        return None
    rows = []
    for what, by_size in zip(contests, times, strict=True):
        against = BUILT_IN[what.tables[0][1].collective.name]
        sides = [(f"{title}, {way}", table) for title, table in what.tables for way in WAYS]
        for size, (built_in, *mine) in zip(what.sizes, by_size, strict=True):
            rows += [row("native", against, table, title, dtype, size, took, built_in)
                     for (title, table), took in zip(sides, mine, strict=True)]
    return rows
