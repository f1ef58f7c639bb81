"""What a lane runs, as loops: the form that code generators read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from schedlang.ir.loops.formulas import Formula
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op


@dataclass(frozen=True)
class Statement:
    """One row of a step, for all ranks and loop turns.

    ``buffer``, ``from_buffer``: indices into the table's buffers, NONE for none. ``chan``: index into its streams,
    NONE for none. ``of``: on a fused send, which row of the step its receive is, counted with all loops in the step
    unrolled; else None. ``event``: its name, or None. ``formulas``: what varies, by name: ``chunk``, ``count``,
    ``peer``, ``from_chunk`` where the operation has them, ``index0``, ``index1`` ... of an event; and where the row
    comes from: ``row``, ``site``, ``turn``, ``number``.
    """

    op: Op
    buffer: int
    from_buffer: int
    chan: int
    of: int | None
    event: str | None
    formulas: Mapping[str, Formula]


@dataclass(frozen=True)
class Step:
    """What is posted together: statements, and loops of statements. Sends stand first, then copies, then all others,
    each in row order: between these the order makes no difference, while messages of a connection and sums into one
    place keep theirs."""

    body: tuple[Statement | Loop, ...]


@dataclass(frozen=True)
class Loop:
    """``body`` run ``count`` times, with one loop variable more: 0, 1, ..., ``count - 1``. Of steps, or within a
    step."""

    count: int
    body: tuple[Step | Statement | Loop, ...]


@dataclass(frozen=True)
class Program:
    """What the lanes of one stream on all of ``ranks`` (increasing) run. The first coordinate of formulas is the
    rank."""

    stream: int
    ranks: Array = field(compare=False)
    body: tuple[Step | Loop, ...]


@dataclass(frozen=True)
class Lanes:
    """All lanes of a table. ``table`` is kept for its buffers, streams, events and sites; ``rows`` is its length."""

    table: OpTable = field(repr=False, compare=False)
    rows: int
    programs: tuple[Program, ...]

    def __str__(self) -> str:
        return "\n".join(line for p in self.programs for line in _program(self.table, p))


Part = Step | Statement | Loop


def length(body: tuple[Part, ...]) -> int:
    """How many steps a body runs; within a step, how many statements."""
    return sum(part.count * length(part.body) if isinstance(part, Loop) else 1 for part in body)


def statements(body: tuple[Part, ...]) -> Iterator[Statement]:
    """The statements of a body, each once."""
    for part in body:
        if isinstance(part, Statement):
            yield part
        else:
            yield from statements(part.body)


def _program(table: OpTable, program: Program) -> Iterator[str]:
    ranks = program.ranks
    run = len(ranks) > 1 and int(ranks[-1]) - int(ranks[0]) == len(ranks) - 1
    some = ", ".join(map(str, ranks[:8].tolist())) + (", ..." if len(ranks) > 8 else "")
    who = f"{ranks[0]}..{int(ranks[-1]) + 1}" if run else some
    yield f"stream {table.streams[program.stream]} on ranks {who}:"
    yield from _body(table, program, program.body, ["rank"], "    ")


def _body(table: OpTable, program: Program, body: tuple[Part, ...], names: list[str], indent: str) -> Iterator[str]:
    for part in body:
        if isinstance(part, Statement):
            yield indent + _statement(table, program, part, names)
        elif isinstance(part, Loop):
            name = "ijklmnuvwxyz"[len(names) - 1] if len(names) <= 12 else f"i{len(names) - 1}"
            yield f"{indent}for {name} in 0..{part.count}:"
            yield from _body(table, program, part.body, [*names, name], indent + "    ")
        elif len(part.body) == 1 and isinstance(part.body[0], Statement):
            yield f"{indent}step: {_statement(table, program, part.body[0], names)}"
        else:
            yield f"{indent}step:"
            yield from _body(table, program, part.body, names, indent + "    ")


def _statement(table: OpTable, program: Program, s: Statement, names: list[str]) -> str:
    def value(name: str) -> str:
        return s.formulas[name].text(names)

    def place(buffer: int, chunk: str) -> str:
        if buffer == NONE:
            return "nothing"
        count = value("count")
        return f"{table.buffers[buffer].name}[{value(chunk)}{'' if count == '1' else f' +: {count}'}]"

    if s.event is not None:
        indices = [value(n) for n in s.formulas if n.startswith("index")]
        return f"{s.op.name.lower()} {s.event}[{', '.join(indices)}]"
    here = place(s.buffer, "chunk")
    chan = "" if s.chan in (NONE, program.stream) else f" chan {table.streams[s.chan]}"
    if s.op is Op.SEND:
        what = here if s.of is None else f"what row {s.of} of the step receives"
        return f"send {what} to {value('peer')}{chan}"
    if s.op is Op.RECV:
        return f"recv {here} from {value('peer')}{chan}"
    source = place(s.from_buffer, "from_chunk")
    if s.op is Op.REDUCE_RECV:
        return f"reduce {here} from {value('peer')}{chan}" + (f" with {source}" if source != here else "")
    return f"{s.op.name.lower()} {source} into {here}"
