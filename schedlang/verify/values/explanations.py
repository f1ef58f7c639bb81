"""Why a result is wrong: what it should hold, what it holds, who wrote it, and where the difference came in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from schedlang.diagnostics import Diagnostic, Note, error
from schedlang.ir.origin import at_row, came_from
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.verify import collapse
from schedlang.verify.values.conditions import Conditions
from schedlang.verify.values.history import History, Trail, history, trail
from schedlang.verify.values.nearby import nearby
from schedlang.verify.values.walk import ADD, PUT, Program

MISSING, REPEATED, FOREIGN = 1, 2, 3
"""What is wrong with a result: something is missing; something is held twice; something does not belong there."""

MOST_GROUPS = 12
"""How many groups of wrong results are explained one by one."""


@dataclass(frozen=True)
class Wrong:
    """Results that are not as they must be: indices into ``Conditions.results``, and MISSING, REPEATED or FOREIGN."""

    results: Array
    kinds: Array


def explain(table: OpTable, program: Program, conditions: Conditions, wrong: Wrong) -> list[Diagnostic]:
    """SL501 to SL504 for wrong results, equal ones collapsed."""
    return _Explainer(table, program, conditions, wrong).findings() if len(wrong.results) else []


def contributions(conditions: Conditions, ids: Sequence[int]) -> str:
    """Contributions in words: ``chunk 3 of data from ranks 0 to 2, 4``."""
    if not ids:
        return "nothing"
    buffer, rank, chunk = conditions.origins(ids)
    names = [b.name for b in conditions.locations.buffers]
    place = np.argsort(np.argsort(names))[buffer]
    order = np.lexsort((chunk, place))
    begins = np.flatnonzero(np.diff(place[order], prepend=NONE) | np.diff(chunk[order], prepend=NONE))
    ends = [*begins[1:].tolist(), len(order)]

    def part(k: int) -> str:
        ranks = rank[order[begins[k] : ends[k]]]
        first = order[begins[k]]
        return (f"chunk {chunk[first]} of {names[buffer[first]]} from rank{'s' if len(ranks) > 1 else ''} "
                f"{collapse.numbers(ranks)}")

    few = len(begins) <= 3
    shown = [part(k) for k in range(len(begins) if few else 2)] + ([] if few else [f"{len(begins) - 2} more chunks"])
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]


LISTED = 64
"""So many contributions of a kind are listed in a witness; how many there are stands beside it."""


@dataclass(frozen=True)
class _Group:
    """Equal wrong results: an index into ``Conditions.results`` as example, and how many there are."""

    example: int
    count: int


class _Explainer:
    """What the explanations of one table share: who wrote each location last, and which results are wrong."""

    def __init__(self, table: OpTable, program: Program, conditions: Conditions, wrong: Wrong) -> None:
        self.table, self.program, self.conditions, self.wrong = table, program, conditions, wrong
        total = conditions.locations.total
        self.last = np.full(total, NONE, np.int64)      # the carrier that wrote a location last
        self.when = np.full(total, NONE, np.int64)      # and in which batch
        for number, (event, start, stop) in enumerate(program.batches):
            if event in (PUT, ADD):
                where = program.where[event][start:stop]
                self.last[where] = program.who[event][start:stop]
                self.when[where] = number
        self.place = conditions.results[wrong.results]
        self.sorted = np.argsort(self.place, kind="stable")
        self.trails: dict[int, Trail] = {}

    def findings(self) -> list[Diagnostic]:
        never = (self.last[self.place] == NONE) & ~np.isin(self.place, self.conditions.initial_at)
        found = [self._never_written(self.wrong.results[never])] if never.any() else []
        explained: dict[int, Diagnostic] = {}
        for group in self._groups(Wrong(self.wrong.results[~never], self.wrong.kinds[~never])):
            past = history(self.program, self.conditions, int(self.conditions.results[group.example]))
            root = self._root(past)
            if root in explained:
                explained[root] = replace(explained[root], count=explained[root].count + group.count)
                continue
            if root != past.location:
                past = history(self.program, self.conditions, root)
            explained[root] = self._wrong_value(past, self._result(root), group.count)
        return _merged([*found, *explained.values()])

    def _result(self, place: int) -> int:
        """The wrong result at a location, NONE where there is none."""
        at = int(np.searchsorted(self.place, place, sorter=self.sorted))
        found = at < len(self.place) and self.place[self.sorted[at]] == place
        return int(self.wrong.results[self.sorted[at]]) if found else NONE

    def _groups(self, wrong: Wrong) -> list[_Group]:
        """Wrong results by kind and by the statement that wrote them last. The example is the one that was finished
        first: the nearest to what went wrong."""
        groups = []
        for kind in (FOREIGN, REPEATED, MISSING):
            results = wrong.results[wrong.kinds == kind]
            place = self.conditions.results[results]
            order = np.lexsort((place, self.when[place]))
            writer = self.last[place[order]]
            rows = np.full(len(writer), NONE, np.int64)
            rows[writer != NONE] = self.program.carriers.receiver[writer[writer != NONE]]
            groups += [_Group(int(results[order[i]]), n) for i, n in collapse.by_statement(self.table, rows)]
        if len(groups) > MOST_GROUPS:
            rest = sum(g.count for g in groups[MOST_GROUPS:])
            final = groups[MOST_GROUPS - 1]
            groups = [*groups[: MOST_GROUPS - 1], replace(final, count=final.count + rest)]
        return groups

    def _root(self, past: History) -> int:
        """The wrong result that a wrong result is only a copy of: as long as all it holds came by one plain write, from
        the final value of another wrong result that must hold the same, that other one is to be explained."""
        at, writers = past.location, past.writers
        must = self.conditions.expected(self._result(at))
        while len(writers) == 1 and writers[0] in past.copied and self._copies(writers[0]):
            source, writers = past.copied[writers[0]]   # written before it was read, and not again: this ends
            if not writers or writers[-1] != self.last[source] or self._result(source) == NONE:
                break
            if self.conditions.expected(self._result(source)) != must:
                break
            at = source
        return at

    def _copies(self, carrier: int) -> bool:
        """Whether what a carrier brings is all that is there afterwards, as it was where it was read."""
        c = self.program.carriers
        return not c.adds[carrier] and (c.operand is None or int(c.operand[carrier]) == NONE)

    def _never_written(self, results: Array) -> Diagnostic:
        table, c = self.table, self.program.carriers
        buffer, rank, chunk = self.conditions.locations.where(int(self.conditions.results[results[0]]))
        place = f"{table.buffers[buffer].name}[{chunk}]"
        should = contributions(self.conditions, self.conditions.expected(int(results[0])))
        row, notes = NONE, []
        help = f"copy, send or reduce it into {place}; look for a loop that ends too early"
        unstored = np.flatnonzero((c.target == NONE) & (table.rank[c.receiver] == rank))
        if len(unstored):
            row = int(c.receiver[unstored[0]])
            at, said = table.origin(row)[0], came_from(table, row)
            peer = int(table.peer[row])
            notes.append(Note(f"here rank {rank} passes on what rank {peer} sends and stores nothing{said}", at))
            help = f"leave out `only`, or store it `into {place}`"
        whence, others = self._whence(self.conditions.expected(int(results[0])), rank, place)
        there, near = nearby(table, self.program, self.conditions, int(self.conditions.results[results[0]]))
        if near in others:
            there = []
        should = f"should hold {should}, but nothing writes it"
        found = error("SL504", f"{place} on rank {rank} is part of the result and {should}",
                      notes=[*notes, *whence, *there], count=len(results), help=help,
                      buffer=table.buffers[buffer].name, rank=rank, chunk=chunk)
        return at_row(found, table, row, *others, near)

    def _whence(self, should: list[int], rank: int, place: str) -> tuple[list[Note], list[int]]:
        """Where a contribution that belongs into a place of a rank is instead, and the rows that say so; one from
        another rank, if there is one."""
        far = np.flatnonzero(self.conditions.origins(should)[1] != rank)
        contribution = should[int(far[0]) if len(far) else 0]
        what = contributions(self.conditions, [contribution])
        if not len(far):
            origin = self.conditions.locations.name(self.conditions.origin(contribution))
            return [Note(f"{what} is in {origin} from the start, and nothing brings it from there into {place}")], []
        path = self.trails[contribution] = trail(self.program, self.conditions, contribution, rank)
        if path.came == NONE:
            return self._lost(contribution), [self._row(c) for c in (path.last, path.lost) if c != NONE]
        row = self._row(path.came)
        at, said = self.table.origin(row)[0], came_from(self.table, row)
        into = self.conditions.locations.name(int(self.program.carriers.target[path.came]))
        return [Note(f"{what} comes as far as {into}{said}, and not into {place}", at)], [row]

    def _wrong_value(self, past: History, result: int, count: int) -> Diagnostic:
        conditions, table = self.conditions, self.table
        should = conditions.expected(result)
        holds, twice = past.ids(past.value.once), past.ids(past.value.twice)
        foreign, missing = sorted(set(holds) - set(should)), sorted(set(should) - set(holds))
        guilty = past.writers[-1] if past.writers else None
        if foreign:
            code, help = "SL503", "compare the place it should have gone to with the place this writes"
            guilty = _brought(past, past.bits(foreign), guilty)
            fault = f"ends with {contributions(conditions, foreign)}, which does not belong there"
        elif twice:
            code = "SL502"
            help = "add each contribution once: leave this one out, or pass finished values on with `send`"
            guilty = past.repeats[0]
            fault = f"ends with {contributions(conditions, twice)} more than once"
        else:
            code, help = "SL501", "carry it there before the end; where other contributions are to stay, `reduce` it"
            fault = f"ends without {contributions(conditions, missing)}"
            guilty = self._destroyed(missing[0], guilty)
        name = conditions.locations.name(past.location)
        message = (f"{name} {fault}: it should hold {contributions(conditions, should)} "
                   f"and holds {_held(conditions, past)}")
        notes = self._written(past, guilty, name)
        went: list[int] = []
        if missing:
            notes += self._lost(missing[0])
            path = self._trail(missing[0])
            went = [self._row(carrier) for carrier in (path.last, path.lost) if carrier != NONE]
        row, rows = NONE, [self._row(w) for w in past.writers[-3:]]
        if guilty is not None:
            row = self._row(guilty)
            rows.insert(0, row)
            message += came_from(table, row)

        def plain(ids: Sequence[int]) -> list[list[object]]:
            places = zip(*(part.tolist() for part in conditions.origins(ids[:LISTED])), strict=True)
            return [[table.buffers[b].name, r, k] for b, r, k in places]

        buffer, rank, chunk = conditions.locations.where(past.location)
        found = error(code, message, notes=notes, help=help, count=count, buffer=table.buffers[buffer].name, rank=rank,
                      chunk=chunk, should=plain(should), should_count=len(should), holds=plain(holds),
                      holds_count=len(holds), twice=plain(twice), twice_count=len(twice), rows=rows)
        return at_row(found, table, row, *went, *rows)

    def _trail(self, contribution: int) -> Trail:
        if contribution not in self.trails:
            self.trails[contribution] = trail(self.program, self.conditions, contribution)
        return self.trails[contribution]

    def _destroyed(self, missing: int, otherwise: int | None) -> int | None:
        """The plain write that overwrote a missing contribution before it went anywhere, and before the result was
        finished; else the last writer."""
        path, lands = self._trail(missing), self.program.carriers.lands
        early = path.last == NONE and path.lost != NONE and (otherwise is None or lands[path.lost] < lands[otherwise])
        return path.lost if early else otherwise

    def _row(self, carrier: int) -> int:
        return int(self.program.carriers.receiver[carrier])

    def _written(self, past: History, guilty: int | None, name: str) -> list[Note]:
        """The operations that made the value: the guilty one, where it took part in that, and the last that wrote the
        location."""
        table = self.table
        notes = [] if past.writers else [Note(f"no operation writes {name}")]
        if guilty in past.moved:
            assert guilty is not None
            if guilty not in past.writers[-1:]:
                notes.append(collapse.note(table, self._row(guilty), "it came about by "))
            sender = int(self.program.carriers.sender[guilty])
            if table.site[sender] != table.site[self._row(guilty)]:
                notes.append(collapse.note(table, sender, "what arrived there was sent by "))
        for turn, writer in enumerate(past.writers[:-4:-1]):
            notes.append(collapse.note(table, self._row(writer), "before that by " if turn else "written last by "))
        return notes

    def _lost(self, contribution: int) -> list[Note]:
        """Where a missing contribution went."""
        table, places = self.table, self.conditions.locations
        what = contributions(self.conditions, [contribution])
        path = self._trail(contribution)
        reached = Note(f"{what} never leaves {places.name(path.to)}")
        if path.last != NONE:
            last = self._row(path.last)
            at, said = table.origin(last)[0], came_from(table, last)
            further = " and goes no further" if path.lost == NONE else ""
            reached = Note(f"{what} comes as far as {places.name(path.to)}{said}{further}", at)
        if path.lost == NONE:
            return [reached]
        return [reached, collapse.note(table, self._row(path.lost), "there it is overwritten by ")]


def _merged(found: list[Diagnostic]) -> list[Diagnostic]:
    """Findings of one code at one place are one finding."""
    by_place: dict[object, Diagnostic] = {}
    for d in found:
        at = d.location
        key = (d.code, None if at is None else (at.file, at.line, at.column))
        known = by_place.get(key)
        by_place[key] = d if known is None else replace(known, count=known.count + d.count)
    return list(by_place.values())


def _held(conditions: Conditions, past: History) -> str:
    once, twice = past.ids(past.value.once & ~past.value.twice), past.ids(past.value.twice)
    if not twice:
        return contributions(conditions, once)
    text = f"more than once {contributions(conditions, twice)}"
    return f"{contributions(conditions, once)}, and {text}" if once else text


def _brought(past: History, foreign: int, otherwise: int | None) -> int | None:
    """The first addition that mixed foreign contributions with others; where the value is foreign as a whole, the last
    writer."""
    return next((carrier for carrier, old, new in past.mixes
                 if (new & foreign and old & ~foreign) or (old & foreign and new & ~foreign)), otherwise)
