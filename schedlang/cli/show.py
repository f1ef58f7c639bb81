"""``schedlang show``: step by step who holds what, as text, drawing or page; or one rank's own operations."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from schedlang.cli.common import EXIT_CLEAN, a_range, bad_option, load_table, output_file, value_options, write_text
from schedlang.cli.common import show as show_findings
from schedlang.diagnostics import SchedError, Severity, error
from schedlang.loading import split_name

if TYPE_CHECKING:
    from schedlang.ir.table import OpTable
    from schedlang.render.holdings import Walk
    from schedlang.render.style import Style


@click.command()
@click.argument("schedule", metavar="FILE[::NAME]")
@click.option("--ranks", metavar="N", help="How many ranks.")
@value_options
@click.option("--rank", type=click.IntRange(min=0), metavar="R", help="Rank R's own operations, stream by stream.")
@click.option("--steps", metavar="A..B", help="Only steps A to B - 1, counted from 0.")
@click.option("--format", "form", type=click.Choice(["text", "svg", "html"]), default="text", show_default=True,
              help="Text, a drawing, or a page that steps through it.")
@click.option("-o", "--output", metavar="FILE", help="Write the result to FILE instead of the standard output.")
def command(schedule: str, ranks: str | None, parameters: tuple[str, ...], op: str | None, max_ops: int | None,
            rank: int | None, steps: str | None, form: str, output: str | None) -> int:
    """Draw step by step who holds what.

    FILE is a schedule, an op table in JSON, or MSCCL XML (.xml, .xml.gz). Everything that can happen at once is one
    step of the picture, and connections buffer without limit. What is wrong with the schedule is said above it.

    A parameter that is not given has its default, or, where it has none, its value in the first case of the `verify`
    line that fits. --ranks has to be given unless `ranks` has a default or is computed from the parameters.
    """
    from schedlang.render.holdings import MAX_ROWS, walk
    from schedlang.render.style import wants_color

    wanted = a_range(steps, "--steps")
    output = output_file(output, split_name(schedule)[0])
    table, findings = load_table(schedule, ranks=ranks, texts=parameters, op=op, max_ops=max_ops)
    show_findings(findings, err=True)
    if rank is not None and form != "text":
        raise bad_option(f"--rank {rank}: one rank's operations are shown as text only", help="leave out --format")
    if rank is not None and rank >= table.ranks:
        raise bad_option(f"--rank {rank}: {table.name} has the ranks 0 to {table.ranks - 1}")
    if rank is None and len(table) > MAX_ROWS:
        help = "show fewer ranks" + (", or one rank with --rank R" if form == "text" else "")
        raise SchedError(error("SL208", f"{table.name} has {len(table):,} operations, too many to draw "
                                        f"(at most {MAX_ROWS:,})", help=help))
    walked = walk(table) if rank is None else None
    count = len(walked.rounds) if walked is not None else int(table.step[table.rank == rank].max(initial=-1)) + 1
    if wanted is not None and not range(wanted.start, min(wanted.stop, count)):
        there = f"the steps 0 to {count - 1}" if count else "no steps"
        raise bad_option(f"--steps {steps}: {table.name if rank is None else f'rank {rank}'} has {there}")
    drawn = (_drawn(table, walked, wanted, form) if walked is not None and form != "text" else
             _text(table, walked, rank or 0, wanted, color=output is None and wants_color(sys.stdout)))
    if output is None:
        for piece in drawn:
            click.echo(piece, nl=False, color=True)
    else:
        write_text(output, "".join(drawn))
    return EXIT_CLEAN


def _drawn(table: OpTable, walked: Walk, wanted: range | None, form: str) -> list[str]:
    """The drawing, as it is or with a page round it."""
    from schedlang.render.timeline import TooLarge
    from schedlang.verify import verify

    if form == "svg":
        from schedlang.render.svg import svg as render
    else:
        from schedlang.render.html import html as render
    try:
        return [render(table, walked, wanted, verify(table).diagnostics)]
    except TooLarge as large:
        help = "draw some of its steps with --steps A..B, or one rank as text with --rank R; of source, fewer --ranks"
        raise SchedError(error("SL208", f"{table.name}: {large}", help=help)) from None


def _text(table: OpTable, walked: Walk | None, rank: int, wanted: range | None, *, color: bool) -> Iterator[str]:
    """The picture for a terminal, or where there is no walk the operations of one rank."""
    from schedlang.render.holdings import MAX_ROWS
    from schedlang.render.picture import Picture, rank_lines
    from schedlang.render.style import Style, terminal_width

    style = Style(color)
    if len(table) <= MAX_ROWS:
        yield from (f"{line}\n" for line in _faults(table, style, terminal_width(), drawn=walked is not None))
    lines = (Picture(table, walked, columns=terminal_width(), style=style).lines(wanted) if walked is not None
             else rank_lines(table, rank, wanted, style))
    yield from (f"{line}\n" for line in lines)


def _faults(table: OpTable, style: Style, columns: int, *, drawn: bool) -> Iterator[str]:
    """A sentence, in lines of at most ``columns``, that says what is wrong with a schedule: a picture shows one order
    of what happens, in which a race or a deadlock need not show."""
    from textwrap import wrap

    from schedlang.codes import CODES
    from schedlang.render.style import one_line
    from schedlang.verify import verify

    found = [d for d in verify(table).diagnostics if d.severity is Severity.ERROR]
    if found:
        worst, others = found[0], len(found) - 1
        more = f", and {others} more error{'s' * (others > 1)}" if others else ""
        how = ". Drawn with unlimited buffering, in one order of many" if drawn else ""
        first, *rest = wrap(
            f"FAULTY  {worst.code} {CODES[worst.code].name}: {one_line(worst.message)}{more}; `schedlang verify` says "
            f"more{how}.", columns, subsequent_indent="        ", break_on_hyphens=False)
        yield style("error", "FAULTY") + first.removeprefix("FAULTY")
        yield from rest
