"""Why a result is wrong: what it should hold, what it holds, who wrote it, and where the difference came in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from schedlang.diagnostics import Diagnostic, Note, error
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.source import Location
from schedlang.verify import collapse, words
from schedlang.verify.conditions import Conditions
from schedlang.verify.history import History, history, trail
from schedlang.verify.walk import ADD, PUT, Program

MOST_GROUPS = 12
"""How many groups of wrong results are explained one by one."""


MISSING, REPEATED, FOREIGN = 1, 2, 3
"""What is wrong with a result: something is missing; something is held twice; something does not belong there."""


@dataclass(frozen=True)
class Wrong:
    """Results that are not as they must be: indices into ``Conditions.results``, and MISSING, REPEATED or FOREIGN."""

    results: Array
    kinds: Array


@dataclass(frozen=True)
class _Group:
    """Results with equal last writers: the example, how many."""

    example: int
    count: int


def explain(table: OpTable, program: Program, conditions: Conditions, wrong: Wrong) -> list[Diagnostic]:
    """SL501 to SL504 for wrong results, equal ones collapsed."""
    if len(wrong.results) == 0:
        return []
    last, when = _last_writers(program, conditions)
    place = conditions.results[wrong.results]
    never = (last[place] == NONE) & ~np.isin(place, conditions.initial_at)
    found = []
    if never.any():
        found.append(_never_written(table, program, conditions, wrong.results[never]))
    rest = Wrong(wrong.results[~never], wrong.kinds[~never])
    for group in _groups(table, program, rest, conditions, last, when):
        found.append(_wrong_value(table, program, conditions, group))
    return _merged(found)


def _last_writers(program: Program, conditions: Conditions) -> tuple[Array, Array]:
    """For each location the carrier that wrote it last (NONE: none), and in which batch."""
    last = np.full(conditions.locations.total, NONE, np.int64)
    when = np.full(conditions.locations.total, NONE, np.int64)
    for number, (event, start, stop) in enumerate(program.batches):
        if event in (PUT, ADD):
            where = program.where[event][start:stop]
            last[where] = program.who[event][start:stop]
            when[where] = number
    return last, when


def _groups(table: OpTable, program: Program, wrong: Wrong, conditions: Conditions, last: Array, when: Array
            ) -> list[_Group]:
    """Wrong results by kind and by the statement that wrote them last. The example is the one that was finished first:
    the nearest to what went wrong."""
    groups = []
    for kind in (FOREIGN, REPEATED, MISSING):
        results = wrong.results[wrong.kinds == kind]
        place = conditions.results[results]
        order = np.lexsort((place, when[place]))
        writer = last[place[order]]
        rows = np.full(len(writer), NONE, np.int64)
        rows[writer != NONE] = program.carriers.receiver[writer[writer != NONE]]
        groups += [_Group(int(results[order[i]]), n) for i, n in collapse.by_statement(table, rows)]
    if len(groups) > MOST_GROUPS:
        rest = sum(g.count for g in groups[MOST_GROUPS:])
        final = groups[MOST_GROUPS - 1]
        groups = [*groups[: MOST_GROUPS - 1], replace(final, count=final.count + rest)]
    return groups


def _merged(found: list[Diagnostic]) -> list[Diagnostic]:
    """Findings of one code at one place are one finding."""
    by_place: dict[object, Diagnostic] = {}
    for d in found:
        at = d.location
        key = (d.code, None if at is None else (at.file, at.line, at.column))
        known = by_place.get(key)
        by_place[key] = d if known is None else replace(known, count=known.count + d.count)
    return list(by_place.values())


def contributions(conditions: Conditions, ids: Iterable[int]) -> str:
    """Contributions in words: ``chunk 3 of data from ranks 0..2, 4``."""
    by_chunk: dict[tuple[str, int], list[int]] = {}
    for contribution in ids:
        buffer, rank, chunk = conditions.locations.where(conditions.origin(contribution))
        by_chunk.setdefault((conditions.locations.table.buffers[buffer].name, chunk), []).append(rank)
    parts = [f"chunk {chunk} of {name} from rank{'s' if len(ranks) > 1 else ''} {collapse.numbers(ranks)}"
             for (name, chunk), ranks in sorted(by_chunk.items())]
    if not parts:
        return "nothing"
    shown = parts if len(parts) <= 3 else [*parts[:2], f"{len(parts) - 2} more chunks"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]


def _never_written(table: OpTable, program: Program, conditions: Conditions, wrong: Array) -> Diagnostic:
    example = int(wrong[0])
    place = int(conditions.results[example])
    buffer, rank, chunk = conditions.locations.where(place)
    should = contributions(conditions, conditions.expected(example))
    name = table.buffers[buffer].name
    c = program.carriers
    unstored = np.flatnonzero((c.target == NONE) & (table.rank[c.receiver] == rank))
    at: Location | None = table.location or table.collective.location
    notes, help = [], f"copy, send or reduce it into {name}[{chunk}]; look for a loop that ends too early"
    if len(unstored):
        row = int(c.receiver[unstored[0]])
        at, said = words.origin(table, row)
        peer = int(table.peer[row])
        notes.append(Note(f"here rank {rank} passes on what rank {peer} sends and stores nothing{said}", at))
        help = f"leave out `only`, or store it `into {name}[{chunk}]`"
    message = f"{name}[{chunk}] on rank {rank} is part of the result and should hold {should}, but nothing writes it"
    return error("SL504", message, at, notes=notes, count=len(wrong), help=help, buffer=name, rank=rank, chunk=chunk)


def _wrong_value(table: OpTable, program: Program, conditions: Conditions, group: _Group) -> Diagnostic:
    place = int(conditions.results[group.example])
    past = history(program, conditions, place)
    should = conditions.expected(group.example)
    holds = past.ids(past.value.once)
    twice = past.ids(past.value.twice)
    foreign = sorted(set(holds) - set(should))
    missing = sorted(set(should) - set(holds))
    c = program.carriers

    def row_of(carrier: int) -> int:
        return int(c.receiver[carrier])

    writers = [row_of(w) for w in past.writers]
    cause = writers[-1] if writers else None
    name = conditions.locations.name(place)
    state = f"it should hold {contributions(conditions, should)} and holds {_held(conditions, past)}"
    notes: list[Note] = []
    if foreign:
        code, help = "SL503", "compare the place it should have gone to with the place this writes"
        guilty = _brought(past, past.bits(foreign))
        cause = row_of(guilty) if guilty is not None else cause
        message = f"{name} ends with {contributions(conditions, foreign)}, which does not belong there: {state}"
    elif twice:
        code, help = "SL502", "add each contribution once: leave this one out, or pass finished values on with `send`"
        guilty = next((carrier for carrier, bits in past.repeats if bits & past.value.twice), None)
        cause = row_of(guilty) if guilty is not None else cause
        message = f"{name} ends with {contributions(conditions, twice)} more than once: {state}"
    else:
        code, help = "SL501", "carry it there before the end; where other contributions are to stay, `reduce` it"
        message = f"{name} ends without {contributions(conditions, missing)}: {state}"
    if missing:
        notes += _lost(table, program, conditions, missing[0])
    if cause is None:
        notes.insert(0, Note(f"no operation writes {name}"))
        at = table.location or table.collective.location
        return _finding(table, conditions, code, message, at, notes, help, group, place, should, past, [])
    at, said = words.origin(table, cause)
    wrote = [collapse.note(table, row, "written last by " if row == writers[-1] else "before that by ")
             for row in writers[: -4 : -1]]
    return _finding(table, conditions, code, message + said, at, wrote + notes, help, group, place, should, past,
                    [cause, *writers[-3:]])


def _finding(table: OpTable, conditions: Conditions, code: str, message: str, at: Location | None, notes: list[Note],
             help: str, group: _Group, place: int, should: list[int], past: History, rows: list[int]) -> Diagnostic:
    buffer, rank, chunk = conditions.locations.where(place)

    def plain(ids: Iterable[int]) -> list[list[object]]:
        places = [conditions.locations.where(conditions.origin(i)) for i in ids]
        return [[table.buffers[b].name, r, k] for b, r, k in places]

    return error(code, message, at, notes=notes, help=help, count=group.count, buffer=table.buffers[buffer].name,
                 rank=rank, chunk=chunk, should=plain(should), holds=plain(past.ids(past.value.once)),
                 twice=plain(past.ids(past.value.twice)), rows=rows)


def _held(conditions: Conditions, past: History) -> str:
    once = past.ids(past.value.once & ~past.value.twice)
    twice = past.ids(past.value.twice)
    text = contributions(conditions, once) if once or not twice else ""
    if twice:
        text += f"{' and, ' if text else ''}more than once, {contributions(conditions, twice)}"
    return text


def _brought(past: History, foreign: int) -> int | None:
    """The first addition that mixed foreign contributions with others; None where the value is foreign as a whole."""
    return next((carrier for carrier, old, new in past.mixes
                 if (new & foreign and old & ~foreign) or (old & foreign and new & ~foreign)), None)


def _lost(table: OpTable, program: Program, conditions: Conditions, contribution: int) -> list[Note]:
    """Where a missing contribution went."""
    what = contributions(conditions, [contribution])
    path = trail(program, conditions, contribution)
    if path.last == NONE:
        return [Note(f"{what} never leaves {conditions.locations.name(conditions.origin(contribution))}")]
    at, said = words.origin(table, int(program.carriers.receiver[path.last]))
    reached = f"{what} comes as far as {conditions.locations.name(path.to)}{said}"
    if path.lost == NONE:
        return [Note(f"{reached} and goes no further", at)]
    over = int(program.carriers.receiver[path.lost])
    return [Note(reached, at), collapse.note(table, over, "there it is overwritten by ")]
