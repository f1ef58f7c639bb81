"""What each stream does, as C++ functions of a lane: loops as loops, the steps in the order of the normal form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from schedlang.backends.cuda.formulas import Tables, Writer
from schedlang.backends.cuda.normal import Normal
from schedlang.backends.cuda.tabled import instructions
from schedlang.codegen.words import INDENT, VARIABLES, WIDTH, first, first_row, identifier, source_lines, variable
from schedlang.ir.loops import Affine, Loop, Program, Statement, Step
from schedlang.ir.loops.nests import Part, statements
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op

PIECE = "p"
_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete
do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
requires return short signed sizeof static static_assert static_cast struct switch template this thread_local throw
true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
"""
KEYWORDS = frozenset(_WORDS.split())
"""The words that C++ has for itself."""

_MACROS = frozenset(["assert", "errno", "i386", "linux", "stderr", "stdin", "stdout", "unix"])
"""Macros of systems and compilers, which no namespace hides. All others are in capitals."""


def reserved(name: str) -> bool:
    """Whether a name means something else in all files."""
    return name in KEYWORDS or name in _MACROS


NAMED = {"their_chunk": "chunk", "from_chunk": "chunk", "like": "chunk", "flag": "event", "rounds": "count"}
"""What numbers are called that are of several kinds."""
_ARGUMENT = r"(?:(?<=\w\()|(?<=\{)|(?<=, ))%s(?=[,)}])"
_WORD = re.compile(r"[A-Za-z_]\w*")

POST, TAKE, PASS, LOCAL = range(4)
"""The parts of a step, in the order in which a lane sees to them."""


def part_of(s: Statement) -> int:
    """Which part of a step a statement belongs to."""
    if s.op is Op.SEND:
        return POST if s.of is None else PASS
    return TAKE if s.op in (Op.RECV, Op.REDUCE_RECV) else LOCAL


@dataclass(frozen=True)
class Names:
    """What things are called in the file: buffers by number, streams (functions) by number in the table."""

    buffers: dict[int, str]
    streams: dict[int, str]

    @classmethod
    def of(cls, table: OpTable, streams: Sequence[int], taken: set[str]) -> Names:
        """Names that are none of those ``taken``. Names in functions may hide them: those of numbers are none that a
        function needs otherwise."""
        taken = taken | {"lane", "rank", PIECE, *VARIABLES, "mod", "div"}
        buffers = {b: identifier(_spelled(buffer.name), "buffer", taken, reserved)
                   for b, buffer in enumerate(table.buffers)}
        return cls(buffers, {s: identifier(f"stream_{table.streams[s]}", "stream", taken, reserved)
                             for s in streams})


def _spelled(name: str) -> str:
    """A name as no macro is spelled."""
    return name.lower() if len(name) > 1 and name == name.upper() else name


@dataclass(frozen=True)
class Context:
    """Where a statement stands: the names and the numbers of values of the coordinates (the rank, loop variables)."""

    names: tuple[str, ...]
    counts: tuple[int, ...]

    def deeper(self, count: int) -> Context:
        return Context((*self.names, variable(len(self.names))), (*self.counts, count))


class Body:
    """The text of the streams of a normal form."""

    def __init__(self, normal: Normal, names: Names, tables: Tables, flags: Array) -> None:
        """``flags``: of each row, the flag of its event."""
        self.normal, self.ranks = normal, normal.table.ranks
        self.names, self.tables, self.flags = names, tables, flags

    def table(self, number: int) -> Iterator[str]:
        """The function of a stream that follows a table of instructions."""
        made, starts = instructions(self.normal, self.flags, number)
        name = self.names.streams[number]
        steps, first = (self.tables.name(f"{name}_{what}", values, None)
                        for what, values in (("steps", made), ("first", starts)))
        yield f"__device__ void {name}(Lane& lane) {{"
        yield f"{INDENT}follow(lane, {steps} + {first}[lane.rank], {steps} + {first}[lane.rank + 1]);"
        yield "}"

    def loops(self, number: int, programs: Sequence[Program]) -> Iterator[str]:
        """The function of a stream, with its loops."""
        yield f"__device__ void {self.names.streams[number]}(Lane& lane) {{"
        yield f"{INDENT}const int rank = lane.rank;"
        for k, program in enumerate(programs):
            who = self._membership(program.ranks)
            inner = INDENT
            if who is not None:
                yield f"{INDENT}{'} else ' * (k > 0)}if ({who}) {{"
                inner += INDENT
            write = _Program(self, program)
            yield from write.body(program.body, Context(("rank",), (len(program.ranks),)), inner)
        if programs and self._membership(programs[-1].ranks) is not None:
            yield f"{INDENT}}}"
        yield "}"

    def _membership(self, ranks: Array) -> str | None:
        """A condition for these ranks; None where it is all of them."""
        world, some = self.ranks, ranks.tolist()
        if len(some) == world:
            return None
        if len(some) <= 2:
            return " || ".join(f"rank == {r}" for r in some)
        gaps = np.unique(np.diff(ranks))
        if len(gaps) > 1:
            among = np.zeros(world, np.int64)
            among[ranks] = 1
            return f"{self.tables.name('among', among, None)}[rank]"
        bounds = [f"rank >= {some[0]}"] * (some[0] > 0) + [f"rank <= {some[-1]}"] * (some[-1] < world - 1)
        if gaps[0] > 1:
            bounds.append(f"rank % {gaps[0]} == {some[0] % gaps[0]}")
        return " && ".join(bounds)


class _Program:
    """The text of one program."""

    def __init__(self, body: Body, program: Program) -> None:
        self.table, self.names, self.program = body.normal.table, body.names, program
        self.write = Writer(body.tables, program.ranks)
        self.normal = body.normal
        self.said: dict[str, str] = {}          # numbers in the lines that are being made, and what they are
        self.given: set[str] = set()            # names in the step that is being made

    def body(self, parts: Sequence[Part], at: Context, indent: str) -> Iterator[str]:
        """Steps, and loops of steps."""
        for part in parts:
            if isinstance(part, Loop):
                inner = at.deeper(part.count)
                yield f"{indent}{_loop(inner.names[-1], part.count)} {{"
                yield from self.body(part.body, inner, indent + INDENT)
                yield f"{indent}}}"
            elif isinstance(part, Step):
                yield from self._step(part, at, indent, alone=len(parts) == 1)

    def _step(self, step: Step, at: Context, indent: str, alone: bool) -> Iterator[str]:
        """``alone``: no other step has this one's names beside it."""
        for line in source_lines(self.table, self.program, step.body, len(at.names), "//", WIDTH - len(indent)):
            yield indent + line.rstrip("\\")            # the next line is none of the comment
        leading, deeper = first(step.body)
        outermost = at
        for _ in range(deeper):
            outermost = Context((*outermost.names, "0"), (*outermost.counts, 1))
        self.said, self.given = {}, set()
        lines = list(self._named(self._phase(step, leading, outermost, at, indent), at, indent))
        if alone or not lines[0].startswith(f"{indent}const "):
            yield from lines
        else:
            yield from [f"{indent}{{", *(INDENT + line for line in lines), f"{indent}}}"]

    def _phase(self, step: Step, leading: Statement, outermost: Context, at: Context, indent: str) -> Iterator[str]:
        """What the lane does in a step. ``outermost``: the context of ``leading``, its first statement."""
        yield from self._part(step.body, POST, at, indent)
        yield from self._settle(leading, "before", outermost, indent)
        if any(part_of(s) == TAKE for s in statements(step.body)):
            rounds = self._value(leading, "rounds", outermost)
            yield f"{indent}for (int {PIECE} = 0; {PIECE} < lane.slices({rounds}); ++{PIECE}) {{"
            yield from self._part(step.body, TAKE, at, indent + INDENT)
            yield from self._part(step.body, PASS, at, indent + INDENT)
            yield f"{indent}}}"
        yield from self._part(step.body, LOCAL, at, indent)
        yield from self._settle(leading, "after", outermost, indent)

    def _settle(self, s: Statement, which: str, at: Context, indent: str) -> Iterator[str]:
        formula = s.formulas[which]
        if not (isinstance(formula, Affine) and formula.constant and formula.offset == NONE):
            yield f"{indent}lane.settle({self._value(s, which, at)});"

    def _part(self, body: Sequence[Part], wanted: int, at: Context, indent: str) -> Iterator[str]:
        """The statements of one part of a step, with the loops round them."""
        for part in body:
            if not any(part_of(s) == wanted for s in statements((part,))):
                continue
            if isinstance(part, Loop):
                inner = at.deeper(part.count)
                yield f"{indent}{_loop(inner.names[-1], part.count)} {{"
                yield from self._named(self._part(part.body, wanted, inner, indent + INDENT), inner, indent + INDENT)
                yield f"{indent}}}"
            elif isinstance(part, Statement):
                yield f"{indent}lane.{self._statement(part, at)};"

    def _statement(self, s: Statement, at: Context) -> str:
        def value(name: str) -> str:
            return self._value(s, name, at)

        def place(buffer: int, chunk: str) -> str:
            return f"{{{self.names.buffers[buffer]}, {value(chunk)}}}"

        if s.op in (Op.RECORD, Op.WAIT):
            return f"{s.op.name.lower()}({value('flag')})"
        if s.op in (Op.COPY, Op.REDUCE):
            ends = f"{place(s.from_buffer, 'from_chunk')}, {place(s.buffer, 'chunk')}"
            return f"{s.op.name.lower()}({ends}, {value('count')}, {value('like')})"
        message = f"{value('peer')}, {value('tag')}, {value('message')}"
        if s.op is Op.SEND:
            return f"post({message})" if s.of is None else f"pass({message}, {PIECE}, {value('count')})"
        row = first_row(self.program, s, len(at.names))
        places = [place(int(self.normal.their_buffer[row]), "their_chunk"), place(s.buffer, "chunk")]
        if s.op is Op.REDUCE_RECV:
            places.append(place(s.from_buffer, "from_chunk"))
        if len(set(places)) == 1:                       # in place, and where it stands at the sender
            places = places[:1]
        name = "take" if s.op is Op.RECV else "take_reduce"
        return f"{name}({message}, {PIECE}, {', '.join(places)}, {value('count')}, {value('like')})"

    def _value(self, s: Statement, field: str, at: Context) -> str:
        text = self.write(s.formulas[field], at.names, at.counts, field)
        self.said.setdefault(text, NAMED.get(field, field))
        return text

    def _named(self, lines: Iterator[str], at: Context, indent: str) -> Iterator[str]:
        """The lines of a step, or of a loop within one, with names for numbers that take long to say and are needed
        more than once. ``at``: the coordinates there."""
        text = "\n".join(lines)
        for said, word in list(self.said.items()):
            variables = set(_WORD.findall(said)) & {*VARIABLES, "rank"}
            argument = _ARGUMENT % re.escape(said)
            if " " in said and variables <= set(at.names) and len(re.findall(argument, text)) > 1:
                name, number = word, 1
                while name in self.given:
                    number += 1
                    name = f"{word}_{number}"
                self.given.add(name)
                del self.said[said]
                text = re.sub(argument, name, text)
                yield f"{indent}const int {name} = {said};"
        yield from text.splitlines()


def _loop(name: str, count: int) -> str:
    return f"for (int {name} = 0; {name} < {count}; ++{name})"
