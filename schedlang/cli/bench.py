"""``schedlang bench``: schedules timed side by side with what they are to replace."""

from __future__ import annotations

from itertools import groupby

import click

from schedlang.cli.bench_native import command as native
from schedlang.cli.benching import as_text, fitting, kind, row, tables
from schedlang.cli.common import EXIT_CLEAN, named_dtype, one_rank_count, output_file, put, value_options
from schedlang.cli.common import parameters as value_lists
from schedlang.cli.executing import OnRanks, progress_bar, within_memory


@click.group()
def command() -> None:
    """Time schedules against what they are to replace."""


command.add_command(native)


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
    from schedlang.backends.torch.job import BUILT_IN, Contest
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
        found = sorted(tables(schedules, number, value_lists(parameters), op, max_ops, BUILT_IN), key=kind)
        for (_, operator, _), group in groupby(found, key=kind):
            if operator:
                require_defined(operator, dtype)
            some = list(group)
            elements = [fitting(some[0][1], size // dtype.numpy.itemsize) for size in wanted]
            contests.append(Contest(some, elements, dtype.name, pairs, seconds))
        times = runner.on_ranks("schedlang.backends.torch.contest:contests", (contests,), number, found[0][1].name,
                                progress)[0]
    if place is not None and place.rank:
        return EXIT_CLEAN
    rows = []
    for what, by_size in zip(contests, times, strict=True):
        against = BUILT_IN[what.tables[0][1].collective.name]
        for size, (built_in, *mine) in zip(what.sizes, by_size, strict=True):
            rows += [row("torch", against, table, title, what.dtype, size, took, built_in)
                     for (title, table), took in zip(what.tables, mine, strict=True)]
    put(as_csv(rows) if style == "csv" else as_text(rows, "built-in", "torch.distributed."), output)
    return EXIT_CLEAN
