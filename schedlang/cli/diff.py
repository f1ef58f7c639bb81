"""``schedlang diff``: whether two schedules do the same, and what each of them costs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from schedlang.cli.common import (
    EXIT_CLEAN,
    EXIT_FINDINGS,
    bad_option,
    output_file,
    put,
    rank_counts,
    show,
    single,
    value_options,
)
from schedlang.cli.common import parameters as value_lists
from schedlang.diagnostics import Diagnostic, SchedError, Severity
from schedlang.loading import load_table, parameters_of, split_name
from schedlang.ready import is_ready, read_ready

if TYPE_CHECKING:
    from schedlang.diff import Difference
    from schedlang.expand import Value


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--ranks", metavar="N", help="How many ranks: 8, 2..9 (2 to 8) or 2,4,8.")
@value_options
@click.option("-a", "--a-param", "only_a", multiple=True, metavar="NAME=VALUE", help="A parameter of A only.")
@click.option("-b", "--b-param", "only_b", multiple=True, metavar="NAME=VALUE", help="A parameter of B only.")
@click.option("--same", type=click.Choice(["operations", "bits", "state"]), default="state", show_default=True,
              help="How much must be the same for status 0: the operations, the bits of the results, or what the "
                   "results are made of.")
@click.option("--format", "style_name", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="How to show the result.")
@click.option("-o", "--output", metavar="FILE", help="Write the result to FILE instead of the standard output.")
def command(a: str, b: str, ranks: str | None, parameters: tuple[str, ...], op: str | None, max_ops: int | None,
            only_a: tuple[str, ...], only_b: tuple[str, ...], same: str, style_name: str,
            output: str | None) -> int:
    """Compare two schedules: do they do the same, and what does each cost?

    A and B are a schedule file, FILE::NAME, an op table in JSON, or MSCCL XML each. Says the strongest of: the same
    operations; the same results to the bit; the same results, but added up in another order; different, and where
    first. Then what each costs, and the lines of its critical path.

    -p gives a parameter to both, as far as they have it. What is not given has its default; where the other side is
    expanded already, as JSON and XML are, the value there.

    Exit status: 0 the same, 1 different or faulty, 2 unusable input.
    """
    from schedlang.render import diff as shown
    from schedlang.render import json
    from schedlang.render.style import Style, terminal_width, wants_color

    targets = a, b
    output = output_file(output, *(split_name(target)[0] for target in targets))
    names = [parameters_of(target) for target in targets]
    given = _given(targets, names, single(value_lists(parameters)), [
        single(value_lists(texts, option), option) for texts, option in ((only_a, "-a"), (only_b, "-b"))])
    counts: Sequence[int | None] = rank_counts(ranks) or [_of_a_table(targets, names, given)]
    found, skipped = _compared(targets, counts, given, op, max_ops)
    sizes = shown.Sizes(a, b, found, skipped)
    if style_name == "json":
        text = json.dumps(shown.document(sizes, same))
    else:
        text = shown.text(sizes, style=Style(output is None and wants_color(sys.stdout)), width=terminal_width())
    put(text, output)
    return EXIT_CLEAN if all(d.ok and d.at_least(same) for d in found) else EXIT_FINDINGS


def _compared(targets: tuple[str, str], counts: Sequence[int | None], given: Sequence[dict[str, Value]], op: str | None,
              max_ops: int | None) -> tuple[list[Difference], list[tuple[int, Diagnostic]]]:
    """What was found for each number of ranks, and which were skipped, and why. Shows remarks on the tables. Raises
    SchedError where a size cannot be used, and where all are skipped."""
    from schedlang.diff import diff

    found: list[Difference] = []
    skipped: list[tuple[int, Diagnostic]] = []
    said: dict[str, Diagnostic] = {}
    for count in counts:
        try:
            tables = [load_table(target, ranks=count, params=values, op=op, max_ops=max_ops, make_up_counts=True)
                      for target, values in zip(targets, given, strict=True)]
        except SchedError as failure:
            if count is None or not _excluded(failure):
                raise
            skipped.append((count, failure.diagnostics[0]))
            if len(skipped) == len(counts):
                raise
            continue
        said.update((str(d), d) for _, remarks in tables for d in remarks)
        found.append(diff(tables[0][0], tables[1][0]))
    show(_together(said.values()), err=True)
    return found, skipped


def _given(targets: tuple[str, str], names: Sequence[Sequence[str]], both: dict[str, Value],
           own: Sequence[dict[str, Value]]) -> list[dict[str, Value]]:
    """The parameters of A and of B: those for both as far as each has them, and its own. Raises SchedError (SL806)."""
    for name in both:
        if not any(name in known for known in names):
            raise bad_option(f"-p {name}: neither A nor B has a parameter {name}", help="; ".join(
                f"{target} has {', '.join(known) or 'none'}" for target, known in zip(targets, names, strict=True)))
    return [{**{name: value for name, value in both.items() if name in known}, **only}
            for known, only in zip(names, own, strict=True)]


def _of_a_table(targets: tuple[str, str], names: Sequence[Sequence[str]],
                given: Sequence[dict[str, Value]]) -> int | None:
    """Where one side holds tables and the other is a source: the number of ranks of that table, whose values the other
    side then has where nothing else is given."""
    ready = [is_ready(split_name(target)[0]) for target in targets]
    if ready[0] == ready[1]:
        return None
    this, other = ready.index(True), ready.index(False)
    held = read_ready(*split_name(targets[this]))
    for key, value in held.cases(None, {name: [v] for name, v in given[this].items()})[0].items():
        if key in names[other] and key != "ranks":
            given[other].setdefault(key, value)
    return held.ranks


def _together(remarks: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Remarks on several sizes: those on chosen values as one, where they chose the same parameters."""
    from schedlang.render.verdict import values_text

    kept: dict[object, list[Diagnostic]] = {}
    for d in remarks:
        values = d.witness.get("values")
        kept.setdefault(str(d) if values is None else tuple(values), []).append(d)
    return [each[0] if len(each) == 1 else replace(
        each[0], message="not given, so taken from the `verify` line for each number of ranks: "
        + values_text([d.witness["values"] for d in each])) for each in kept.values()]


def _excluded(failure: SchedError) -> bool:
    """Whether all that is wrong is that a `require` excludes these values, or that no values make a world of this size.
    """
    from schedlang.expand import OtherWorld

    if isinstance(failure, OtherWorld):
        return True
    errors = [d for d in failure.diagnostics if d.severity is Severity.ERROR]
    return all(d.code == "SL207" for d in errors)
