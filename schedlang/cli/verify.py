"""``schedlang verify``: proves schedules right, or shows what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from schedlang.cli.common import bad_option, named_dtype, output_file, rank_counts, value_options
from schedlang.cli.common import parameters as value_lists
from schedlang.cli.runtime import runtime_options
from schedlang.diagnostics import SchedError, error
from schedlang.loading import expand_case, split_name, with_op
from schedlang.ops import REDUCE_OPS
from schedlang.ready import Ready, is_ready, looks_ready, read_ready

if TYPE_CHECKING:
    from schedlang.cli.progress import Progress
    from schedlang.cli.runtime import Question
    from schedlang.expand import Texts, Value
    from schedlang.ir.table import OpTable
    from schedlang.report import Report


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--ranks", metavar="N", help="How many ranks: 8, 2..9 (2 to 8) or 2,4,8. Default: the `verify` line.")
@value_options
@click.option("--sends", "sends_text", metavar="MODEL", default="default", show_default=False,
              help="How much a connection buffers, for all proofs: rendezvous (nothing), buffered=N (N messages) or "
                   "unlimited; or all that a protocol of MSCCL does: LL, LL128, Simple. Default: deadlock is judged "
                   "without buffering, all else with unlimited buffering.")
@click.option("--require-agreement", is_flag=True, help="Ranks that may end with different bits are an error.")
@click.option("--dtype", metavar="DTYPE", callback=named_dtype,
              help="Say, too, what sums and products do in DTYPE: float16, bfloat16, float32, float64, int8 to uint64.")
@click.option("--accumulate", metavar="DTYPE", callback=named_dtype,
              help="Beside --dtype: values are held in DTYPE until the end.")
@click.option("--why", nargs=2, metavar="A B",
              help="Show what orders two operations, each LINE@NAME=VALUE,... or id=N.")
@click.option("--format", "style_name", type=click.Choice(["full", "concise", "json", "github", "sarif"]),
              default="full", show_default=True, help="How to show the result.")
@click.option("-o", "--output", "file", metavar="FILE", help="Write the result to FILE instead of the standard output.")
@runtime_options
def command(paths: tuple[str, ...], ranks: str | None, parameters: tuple[str, ...], op: str | None, max_ops: int | None,
            sends_text: str, require_agreement: bool, dtype: str | None, accumulate: str | None,
            why: tuple[str, str] | None, style_name: str, file: str | None, question: Question | None) -> int:
    """Prove schedules right, or show what is wrong with them.

    PATH is a schedule file, FILE::NAME for one schedule of several, an op table in JSON, MSCCL XML (.xml, .xml.gz), or
    a folder: then every schedule in it. A parameter that is not given has the values of the schedule's `verify` line,
    else its default; without either 2 to 8 ranks are tried. MSCCL files are judged in place and out of place, as far
    as they are for it, by what their protocol has in flight.
    """
    from schedlang.cli.progress import Progress
    from schedlang.cli.verdicts import Output
    from schedlang.verify.sends import Sends

    if dtype is not None or accumulate is not None:
        _check_dtype(dtype, accumulate)
    sends = Sends.parse(sends_text)
    how = {"sends": sends, "require_agreement": require_agreement, "dtype": dtype, "accumulate": accumulate}
    # Of a runtime --ranks says how many the communicator has; the files have as many as they have.
    job = _Job(rank_counts(ranks) if question is None else None, value_lists(parameters), op, max_ops, how)
    if why is not None:
        from schedlang.cli.why import explain

        if file is not None or style_name != "full":
            raise bad_option("--why shows one chain as text, so it takes neither --format nor --output")
        return explain(job.tables(paths), why, sends)
    output = Output(style_name, output_file(file, *_read(paths) if file else ()), str(sends))
    with Progress() as progress:
        for result in job.all(paths, progress):
            progress.erase()
            output.add(result)
        if question is not None:
            progress.erase()
            output.answer(question.answer())
    return output.finish()


def _check_dtype(dtype: str | None, accumulate: str | None) -> None:
    """Raises SchedError for dtypes that cannot be used, before anything is verified."""
    if dtype is None:
        raise bad_option("--accumulate says something only beside --dtype", help="give the dtype of the arrays, too")
    from schedlang.verify.arithmetic import Arithmetic

    Arithmetic.of(dtype, accumulate)


class _Job:
    """What to verify by: the options of one call."""

    def __init__(self, ranks: list[int] | None, given: Mapping[str, list[Value]], op: str | None, max_ops: int | None,
                 how: Mapping[str, Any]) -> None:
        self.ranks, self.given, self.op, self.max_ops, self.how = ranks, given, op, max_ops, how
        self.texts: Texts | None = None
        self.one_file = True

    def all(self, paths: Sequence[str], progress: Progress) -> Iterator[Report | SchedError]:
        """The verdicts on everything that is named; an error where something could not even be read."""
        self.one_file = len(paths) == 1 and not Path(paths[0]).is_dir()
        seen: set[tuple[str, str | None]] = set()
        for path in paths:
            try:
                found = False
                for file, name in targets(path):
                    this = str(Path(file).absolute()), name
                    if this in seen:
                        found = True
                        continue
                    seen.add(this)
                    for result in self.file(file, name, progress):
                        found = True
                        yield result
                if not found:
                    raise SchedError(error("SL212", f"there is no schedule in {path}", help="a file may have functions "
                                           "only, for others to import; there is nothing here to verify"))
            except SchedError as failure:
                yield failure

    def file(self, file: str, name: str | None, progress: Progress) -> Iterator[Report | SchedError]:
        from schedlang.render.verdict import values_text
        from schedlang.report import Case, Report
        from schedlang.survey import survey

        try:
            progress.say(file)
            if is_ready(file):
                yield self.held(read_ready(file, name), progress)
                return
            from schedlang.expand import Texts, combines, load_program

            self.texts = self.texts or Texts()
            program = load_program(file, self.texts)
            names = program.names if name is None else (program.main(name),)
            for one in names:
                try:
                    op = self.op_for(combines(program, one), alone=len(names) == 1)
                    values = self.cases(program, one)
                    made_up = {key for case in values for key, value in case.items()
                               if hasattr(value, "shape") and key not in self.given}

                    def say(at: int, case: Mapping[str, Any], name: str = one, cases: int = len(values)) -> None:
                        progress.say(f"{file}::{name}  case {at + 1} of {cases}: {values_text([case])}")

                    report = survey(program, one, values, file=file, op=op, max_ops=self.max_ops,
                                    made_up=tuple(sorted(made_up)), progress=say, **self.how)
                    yield replace(report, unused_op=None if op == self.op else self.op)
                except SchedError as failure:
                    yield Report(file, one, (Case({}, "unusable", failure.diagnostics),))
        except SchedError as failure:
            yield failure

    def op_for(self, reduces: bool, *, alone: bool) -> str | None:
        """The operator that replaces a schedule's own. Of several schedules it is for those that reduce; one that is
        meant ``alone`` and has none to replace is refused later."""
        return None if self.op in REDUCE_OPS and not reduces and not (alone and self.one_file) else self.op

    def held(self, ready: Ready, progress: Progress) -> Report:
        """The verdicts on those tables of a file that the options ask for."""
        from schedlang.render.verdict import values_text
        from schedlang.survey import survey_tables

        cases = ready.cases(self.ranks, self.given)
        unused = False

        def made(values: Mapping[str, Any]) -> OpTable:
            nonlocal unused
            table, op = self.made(ready, values)
            unused = op != self.op
            return table

        def say(at: int, case: Mapping[str, Any]) -> None:
            progress.say(f"{ready.file}::{ready.name}  case {at + 1} of {len(cases)}: {values_text([case])}")

        report = survey_tables(cases, made, ready.name, file=ready.file, progress=say, **self.how)
        notes = tuple(ready.notes({key: cases[0][key] for key in self.given}))
        return replace(report, notes=notes, unused_op=self.op if unused else None)

    def made(self, ready: Ready, values: Mapping[str, Any]) -> tuple[OpTable, str | None]:
        """A table of a file, and the operator that it was given."""
        table = ready.table(values)
        op = self.op_for(table.operator is not None, alone=True)
        return (table if op is None else with_op(table, op)), op

    def tables(self, paths: tuple[str, ...]) -> Iterator[tuple[dict[str, Any], OpTable]]:
        """The tables of the one schedule that is named, for all its cases, as far as they expand."""
        if len(paths) != 1:
            raise bad_option("--why looks at one schedule", help="name one: FILE or FILE::NAME")
        file, name = split_name(paths[0])
        if is_ready(file):
            ready = read_ready(file, name)
            for values in ready.cases(self.ranks, self.given):
                yield values, self.made(ready, values)[0]
            return
        from schedlang.expand import load_program

        program = load_program(file)
        name = program.main(name)
        for values in self.cases(program, name):
            expanded, _ = expand_case(program, name, values, op=self.op, max_ops=self.max_ops)
            if expanded is not None:
                yield values, expanded

    def cases(self, program: Any, name: str) -> list[dict[str, Any]]:
        from schedlang.expand import cases

        found = cases(program, name, ranks=self.ranks, params=self.given)
        return sorted(found, key=lambda values: values.get("ranks", 0))


def _read(paths: Sequence[str]) -> Iterator[str]:
    """All files that paths of the command line stand for, as far as they are there."""
    for path in paths:
        with suppress(SchedError):
            yield from (file for file, _ in targets(path))


def targets(path: str) -> list[tuple[str, str | None]]:
    """The files (and the schedule of each, or None) that a PATH of the command line stands for, in order.

    Raises SchedError (SL105) for a folder without schedules.
    """
    file, name = split_name(path)
    if not Path(file).is_dir():
        return [(file, name)]
    if name is not None:
        raise bad_option(f"{path}: {file} is a folder, and :: names a schedule of a file")
    found = sorted(p for p in Path(file).rglob("*") if p.is_file() and (p.suffix == ".sched" or looks_ready(p)))
    if not found:
        raise SchedError(error("SL105", f"there is no schedule in {file}",
                               help="schedules end in .sched, op tables in .json, MSCCL files in .xml or .xml.gz"))
    return [(str(p), None) for p in found]
