"""What each stream does, as Python generators: one function a stream, loops as loops."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from schedlang.codegen.expressions import Tables, expression
from schedlang.codegen.words import INDENT, VARIABLES, WIDTH, first, source_lines, variable
from schedlang.ir.loops import Affine, Loop, Program, Statement, Step
from schedlang.ir.loops.nests import Part
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op

WIDTHS = "deh"
"""Names of powers of two that a step uses several times."""
STARTS = ("first", "second", "third", "fourth")
"""Names of where ranges start, where that takes long to say."""
_RANGE = re.compile(r"\[((?:[^:,]|, )+?) : \1 \+ ")
_WIDTH = re.compile(r"\(\d+ (?:<<|>>) (\w+)\)")


def quoted(text: str) -> str:
    """A string as Python has it."""
    return json.dumps(text, ensure_ascii=False)


@dataclass(frozen=True)
class Names:
    """What things are called in the file. By number in the table: ``buffers`` (those without chunks are left out),
    ``streams`` (functions), ``groups`` (by chan)."""

    buffers: dict[int, str]
    streams: dict[int, str]
    groups: dict[int, str]


@dataclass
class Body:
    """The text of the streams. ``turns``: whether steps say theirs."""

    table: OpTable
    names: Names
    turns: bool
    tables: Tables

    def stream(self, number: int, programs: list[Program]) -> Iterator[str]:
        """The function of a stream."""
        buffers = ", ".join(self.names.buffers.values())
        yield f"def {self.names.streams[number]}(rank{', ' if buffers else ''}{buffers}):"
        for k, program in enumerate(programs):
            who = _membership(program.ranks, self.table.ranks)
            inner = INDENT
            if who is not None:
                yield f"{INDENT}{'el' * (k > 0)}if {who}:"
                inner += INDENT
            yield from self._body(program, program.body, ["rank"], [len(program.ranks)], inner)

    def _body(self, program: Program, body: tuple[Part, ...], names: list[str], counts: list[int],
              indent: str) -> Iterator[str]:
        for part in body:
            if isinstance(part, Loop):
                name = variable(len(names))
                yield f"{indent}for {name} in range({part.count}):"
                yield from self._body(program, part.body, [*names, name], [*counts, part.count], indent + INDENT)
            elif isinstance(part, Step):
                yield from self._step(program, part, names, counts, indent)

    def _step(self, program: Program, part: Step, names: list[str], counts: list[int], indent: str) -> Iterator[str]:
        for line in source_lines(self.table, program, part.body, len(names), "#", WIDTH - len(indent)):
            yield indent + line
        ops = list(self._ops(program, part.body, names, counts))
        for name, text in zip(WIDTHS, _repeated(ops, names), strict=False):
            yield f"{indent}{name} = {text[1:-1]}"
            ops = [op.replace(text, name) for op in ops]
        for name, text in zip(STARTS, _starts(ops, names), strict=False):
            yield f"{indent}{name} = {text}"
            ops = [op.replace(text, name) for op in ops]
        if self.turns:
            leading, deeper = first(part.body)
            value = self._values(program, names + ["0"] * deeper, counts + [1] * deeper)
            ops.append(f"turn={value(leading, 'number', 'turn')}")
        short = f"{indent}yield step({', '.join(ops)})"
        if len(ops) - self.turns <= 1 and len(short) <= WIDTH:
            yield short
            return
        yield f"{indent}yield step("
        for op in ops:
            yield f"{indent}{INDENT}{op},"
        yield f"{indent})"

    def _ops(self, program: Program, body: tuple[Part, ...], names: list[str], counts: list[int]) -> Iterator[str]:
        """The operations of a step, each an argument; loops as generator expressions."""
        for part in body:
            if isinstance(part, Statement):
                yield self._statement(program, part, names, self._values(program, names, counts))
            elif isinstance(part, Loop):
                name = variable(len(names))
                inner = list(self._ops(program, part.body, [*names, name], [*counts, part.count]))
                over = f"for {name} in range({part.count})"
                if len(inner) == 1 and inner[0].startswith("*("):
                    head, _, rest = inner[0][2:-1].partition(" for ")
                    yield f"*({head} {over} for {rest})"
                elif len(inner) == 1:
                    yield f"*({inner[0]} {over})"
                else:
                    yield f"*(op {over} for op in ({', '.join(inner)}))"

    def _statement(self, program: Program, s: Statement, names: list[str],
                   value: Callable[[Statement, str, str], str]) -> str:
        if s.event is not None:
            indices = [value(s, name, "event") for name in s.formulas if name.startswith("index")]
            return f"{s.op.name.lower()}({', '.join([quoted(s.event), *indices])})"

        def place(buffer: int, chunk: str) -> str:
            name, start, count = self.names.buffers[buffer], value(s, chunk, "chunk"), value(s, "count", "count")
            if count == "1":
                return f"{name}[{start}]"
            first, more = s.formulas[chunk], s.formulas["count"]
            if isinstance(first, Affine) and isinstance(more, Affine):
                slopes = tuple(a + b for a, b in zip(first.slopes, more.slopes, strict=True))
                stop = Affine(first.offset + more.offset, slopes).text(names)
            else:
                stop = count if start == "0" else f"{start} + {count}"
            return f"{name}[{start}:{stop}]" if start.isdigit() and stop.isdigit() else f"{name}[{start} : {stop}]"

        here = place(s.buffer, "chunk")
        group = f", group={quoted(self.names.groups[s.chan])}" if s.chan not in (NONE, program.stream) else ""
        peer = value(s, "peer", "peer") if "peer" in s.formulas else ""
        if s.op is Op.SEND:
            return f"send({here}, dst={peer}{group})"
        if s.op is Op.RECV:
            return f"recv({here}, src={peer}{group})"
        other = place(s.from_buffer, "from_chunk")
        if s.op is Op.REDUCE_RECV:
            return f"recv_reduce({here}, src={peer}{group}{'' if other == here else f', operand={other}'})"
        return f"{s.op.name.lower()}({other}, into={here})"

    def _values(self, program: Program, names: list[str], counts: list[int]) -> Callable[[Statement, str, str], str]:
        def value(s: Statement, field: str, word: str) -> str:
            return expression(s.formulas[field], names, counts, program.ranks, self.tables, word)

        return value


def _repeated(ops: list[str], names: list[str]) -> list[str]:
    """Powers of two that a step uses more than once, of the loops round it."""
    found: dict[str, int] = {}
    for op in ops:
        for match in _WIDTH.finditer(op):
            if match[1] in names:
                found[match[0]] = found.get(match[0], 0) + 1
    return [text for text, times in found.items() if times > 1]


def _starts(ops: list[str], names: list[str]) -> list[str]:
    """Where ranges start that a step has, said in terms of the loops round it."""
    texts = dict.fromkeys(match[1] for op in ops for match in _RANGE.finditer(op) if len(match[1]) > 10)
    inner = {*VARIABLES} - {*names}
    return [text for text in sorted(texts, key=len, reverse=True) if inner.isdisjoint(re.findall(r"\w+", text))]


def _membership(ranks: Array, world: int) -> str | None:
    """A condition for these ranks; None where it is all of them."""
    if len(ranks) == world:
        return None
    some = ranks.tolist()
    if len(some) == 1:
        return f"rank == {some[0]}"
    gaps = np.unique(np.diff(ranks))
    if len(gaps) > 1:
        return f"rank in {{{', '.join(map(str, some))}}}" if len(some) > 2 else f"rank in ({some[0]}, {some[1]})"
    if gaps[0] == 1:
        return (f"rank >= {some[0]}" if some[-1] == world - 1 else f"rank <= {some[-1]}" if some[0] == 0
                else f"{some[0]} <= rank <= {some[-1]}")
    return f"rank in range({some[0]}, {some[-1] + 1}, {gaps[0]})"
