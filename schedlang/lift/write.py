"""Loop nests as the lines of a schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from schedlang.ir.loops.formulas import Affine, Formula, Modular
from schedlang.ir.table import NONE, Array
from schedlang.lift.formulas import Seated, uses
from schedlang.lift.kinds import WORDS, Field, Kind
from schedlang.lift.names import FIRST, OTHERS, SLOT, VARIABLES
from schedlang.lift.nest import Group, Line, Nest, Part, Turns, lines
from schedlang.lift.phrase import INDENT, Coordinate, Tables, first, phrase, slot

WIDTH = 120

BLOCKS = ("for ", "if ", "on ", "step", "stream ", "let ")
"""How what is no statement by itself begins."""

EVENT = (Field.WITH, Field.LANE, Field.TURN)
"""What is told of an event, in this order."""


@dataclass(frozen=True, eq=False)
class Naming:
    """How the lanes of a nest are called: stream ``word``, or ``word[index]``, or just ``index``; the number of their
    connections, where that is another name than the stream's; ``each``: it changes from statement to statement."""

    word: str
    index: Formula | None
    chan: Formula | None
    each: bool = False


@dataclass(frozen=True, eq=False)
class Words:
    """Names for a whole table. ``events``: of each sort: the word, and whether it is told whom the lane exchanges
    messages with, which of several lanes it is, and which of several records. ``passing``: a place for what is passed
    on without being stored."""

    buffers: list[str]
    events: dict[int, tuple[str, bool, bool, bool]]
    passing: str


def nest_lines(nest: Nest, naming: Naming, kinds: list[Kind], words: Words, tables: Tables) -> list[str]:
    """The lines of one nest: loops over its lanes, their streams, and what they run."""
    return _Writer(nest, naming, kinds, words, tables).lines()


@dataclass(frozen=True, eq=False)
class _Writer:
    nest: Nest
    naming: Naming
    kinds: list[Kind]
    words: Words
    tables: Tables

    def lines(self) -> list[str]:
        axes, at = self.nest.members.shape[1:], (Coordinate("", 0, 1, self.nest.anchors),)
        if self.by_anchor():
            return self.anchors(at, lambda there: self.axes(1, there, axes))
        return self.axes(1, at, axes)

    def axes(self, axis: int, at: tuple[Coordinate, ...], sizes: Sequence[int]) -> list[str]:
        """The loops over the lanes of one anchor, and what is in them."""
        if not sizes:
            return self.stream(at)
        if axis == 1 and self.nest.others is not None:
            name = OTHERS[0]
            return self.others(name, self.nest.others.out, at, lambda c: self.slotted(
                self.axes(axis + 1, (*at, c), sizes[1:]), name, at))
        if sizes[0] == 1:
            return self.axes(axis + 1, (*at, Coordinate("")), sizes[1:])
        name = VARIABLES[axis if self.nest.others is None else axis - 1]
        return self.loop(sizes[0], name, lambda c: self.axes(axis + 1, (*at, c), sizes[1:]))

    def by_anchor(self) -> bool:
        """Whether the names of streams, or which there are, depend on the anchor."""
        return self.nest.others is not None or any(
            f is not None and uses(f, 0) for f in (self.naming.index, self.naming.chan))

    def stream(self, at: tuple[Coordinate, ...]) -> list[str]:
        n = self.naming
        index = "" if n.index is None else phrase(n.index, at, self.tables, "stream")
        name = f"{n.word}[{index}]" if n.word and index else n.word or index
        if not name:
            return self.on(at) if self.by_anchor() else self.anchors(at, self.on)
        chan = [] if n.chan is None else [f"chan {phrase(n.chan, at, self.tables, WORDS[Field.CHAN])}"]
        inner = self.on(at) if self.by_anchor() else self.anchors(at, self.on)
        return headed(f"stream {name}", [*chan, *inner])

    def anchors(self, at: tuple[Coordinate, ...], inner: Callable[[tuple[Coordinate, ...]], list[str]]) -> list[str]:
        """The loop over the anchors."""
        anchors = self.nest.anchors
        if len(anchors) == 1:
            return inner(at)
        c = Coordinate(VARIABLES[0] if self.nest.rings is None else "place", 0, len(anchors), anchors)
        return headed(f"for {c.name} in {self.ranks(anchors)}", named(FIRST, first(c.name), inner((c, *at[1:]))))

    def ranks(self, ranks: Array) -> str:
        low, high = int(ranks[0]), int(ranks[-1]) + 1
        if high - low == len(ranks):
            return f"{low}..{'ranks' if high == self.tables.world else high}"
        return f"[{', '.join(map(str, ranks.tolist()))}]"

    def on(self, at: tuple[Coordinate, ...]) -> list[str]:
        body = self.body(self.nest.body, at)
        if self.kinds[next(lines(self.nest.body)).kind].both:
            return body
        if self.nest.rings is None:
            return headed(f"on {at[0].name or int(self.nest.anchors[0])}", body)
        zero = Affine(0, (0,) * len(at))
        lets = []
        here = ""
        for name, away in (("here", 0), ("before", -1), ("after", 1)):
            seat: Formula = Affine(0, (1, *[0] * (len(at) - 1)))
            if away:
                seat = Modular(zero, Affine(away, (1, *[0] * (len(at) - 1))), self.nest.rings.shape[1])
            text = phrase(Seated(zero, 1, seat, self.nest.rings), at, self.tables, "")
            here = here or text
            if sum(line.count(text) for line in body) + (not away) > 1:
                lets.append(f"let {name} = {text}")
                body = [line.replace(text, name) for line in body]
                here = here.replace(text, name)
        return [*lets, *headed(f"on {here}", body)]

    def loop(self, count: int, name: str, inner: Callable[[Coordinate], list[str]]) -> list[str]:
        """A loop from 0, or from 1 where that is shorter to read."""
        bodies = [inner(Coordinate(name, start, count)) for start in (0, 1)]
        saved = sum(map(len, bodies[0])) - sum(map(len, bodies[1]))
        start = int(saved > 2 and count != self.tables.world)
        stop, world = count + start, self.tables.world
        end = "ranks" if stop == world and (start or name == VARIABLES[0]) else (
            "ranks - 1" if 2 < stop == world - 1 else stop)
        return headed(f"for {name} in {start}..{end}", bodies[start])

    def others(self, name: str, out: Sequence[Formula], at: tuple[Coordinate, ...],
               inner: Callable[[Coordinate], list[str]]) -> list[str]:
        """A loop over the ranks but for some."""
        body = inner(Coordinate(name, 0, self.tables.world))
        condition = " and ".join(f"{name} != {phrase(f, at, self.tables, name)}" for f in out)
        if len(body) == 1 and not body[0].startswith(BLOCKS):
            return [f"for {name} in 0..ranks: {body[0]} if {condition}"]
        return headed(f"for {name} in 0..ranks", headed(f"if {condition}", body))

    def slotted(self, body: list[str], name: str, at: tuple[Coordinate, ...]) -> list[str]:
        """A body with a name for the place of a rank among the others."""
        return named(SLOT, slot(name, at[0].name), body)

    def body(self, parts: Sequence[Part], at: tuple[Coordinate, ...]) -> list[str]:
        found: list[str] = []
        for part in parts:
            match part:
                case Line():
                    found += self.line(part, at)
                case Group():
                    found += headed("step", self.body(part.body, at))
                case Turns() if part.out:
                    name = next((v for v in OTHERS if all(c.name != v for c in at)), self.variable(part, at))
                    found += self.others(name, part.out, at, lambda c, p=part: self.body(p.body, (*at, c)))  # type: ignore[misc]
                case Turns():
                    name = self.variable(part, at)
                    found += self.loop(part.count, name, lambda c, p=part: self.body(p.body, (*at, c)))  # type: ignore[misc]
        return found

    def variable(self, part: Turns, at: tuple[Coordinate, ...]) -> str:
        """The name of a loop's variable: r where it is who sends."""
        if part.count == self.tables.world and all(c.name != VARIABLES[0] for c in at) and all(
                self.kinds[line.kind].both and uses(line.formulas[Field.SOURCE], len(at)) for line in lines((part,))):
            return VARIABLES[0]
        return VARIABLES[3 + len(at) - self.nest.members.ndim]

    def line(self, line: Line, at: tuple[Coordinate, ...]) -> list[str]:
        chan = [f"chan {self.value(line, Field.CHAN, at)}"] if self.naming.each and self.transfers(line) else []
        return [*chan, self.statement(line, at)]

    def transfers(self, line: Line) -> bool:
        return self.kinds[line.kind].word in ("send", "recv", "reduce")

    def statement(self, line: Line, at: tuple[Coordinate, ...]) -> str:
        kind = self.kinds[line.kind]
        onward = ""
        if kind.passes:
            onward = f" then send to {self.value(line, Field.ONWARD, at)}{'' if kind.keeps else ' only'}"
        peer = self.value(line, Field.PEER, at)
        here = self.place(line, kind.buffer, Field.AT, at) if kind.buffer != NONE else ""
        there = self.place(line, kind.other, Field.OTHER, at) if kind.other != NONE else ""
        if kind.both:
            who = self.value(line, Field.SOURCE, at)
            if kind.word in ("copy", "add"):
                return f"{'copy' if kind.word == 'copy' else 'reduce'} {there} into {here} on {who}"
            into = f" into {there}" if there != here else ""
            return f"{kind.word} {here} from {who} to {peer}{into}"
        match kind.word:
            case "send":
                return f"send {here} to {peer}"
            case "recv":
                return f"recv {here or self.passing(line, at)} from {peer}{onward}"
            case "reduce":
                into = f" into {here}" if here and there else ""
                return f"reduce {there or here} from {peer}{into}{onward}"
            case "copy" | "add":
                return f"{'copy' if kind.word == 'copy' else 'reduce'} {there} into {here}"
            case _:
                return f"{kind.word} {self.event(line, kind, at)}"

    def event(self, line: Line, kind: Kind, at: tuple[Coordinate, ...]) -> str:
        word, *which = self.words.events[kind.event]
        told = [self.value(line, f, at) for f, told in zip(EVENT, which, strict=True) if told]
        return word + (f"[{', '.join(told)}]" if told else "")

    def value(self, line: Line, which: Field, at: tuple[Coordinate, ...], more: int = 0) -> str:
        # Numbers of records and connections have nothing to do with how many ranks there are.
        tables = replace(self.tables, world=0) if which in (Field.TURN, Field.CHAN) else self.tables
        return phrase(line.formulas[which], at, tables, WORDS[which], more)

    def place(self, line: Line, buffer: int, which: Field, at: tuple[Coordinate, ...]) -> str:
        name, start = self.words.buffers[buffer], self.value(line, which, at)
        count = line.formulas[Field.COUNT]
        if isinstance(count, Affine) and count.constant:
            if count.offset == 1:
                return f"{name}[{start}]"
            return f"{name}[{start}:{self.value(line, which, at, count.offset)}]"
        return f"{name}[{start}:{start} + {self.value(line, Field.COUNT, at)}]"

    def passing(self, line: Line, at: tuple[Coordinate, ...]) -> str:
        count = line.formulas[Field.COUNT]
        if isinstance(count, Affine) and count.constant and count.offset == 1:
            return f"{self.words.passing}[0]"
        return f"{self.words.passing}[0:{self.value(line, Field.COUNT, at)}]"


def named(name: str, text: str, body: list[str]) -> list[str]:
    """A body in which an expression in brackets has a name, where it stands there several times."""
    if sum(line.count(text) for line in body) < 2:
        return body
    return [f"let {name} = {text[1:-1]}", *(line.replace(text, name) for line in body)]


def headed(head: str, body: list[str]) -> list[str]:
    """A block; on one line where that is short and plain."""
    if len(body) == 1 and head.startswith(("on ", "step")) and not body[0].endswith(":") and ": " not in body[0]:
        return [f"{head}: {body[0]}"]
    return [f"{head}:", *(INDENT + line for line in body)]
