"""What differs from file to file besides the steps: the opening words, and the function that callers use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from keyword import iskeyword
from shlex import quote
from textwrap import wrap

import numpy as np

from schedlang.backends.torch.emit.body import Names, quoted
from schedlang.backends.torch.emit.early import receives_stand_ready
from schedlang.backends.torch.emit.lengths import mixed
from schedlang.codegen.expressions import literal
from schedlang.codegen.words import INDENT, WIDTH, printable
from schedlang.ir.layout import measured
from schedlang.ir.table import OpTable
from schedlang.ops import COLLECTIVES, CollectiveKind, Op
from schedlang.version import __version__

TESTED = "2.13.0"

IMPORTS = """\
from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
"""

_TORCHS = {"allreduce": "all_reduce", "reduce": "reduce", "broadcast": "broadcast",
           "reduce_scatter": "reduce_scatter_tensor", "allgather": "all_gather_into_tensor", "scatter": "scatter",
           "gather": "gather", "alltoall": "all_to_all_single", "alltoallv": "all_to_all_single",
           "allgatherv": "broadcast of each part", "reduce_scatterv": "reduce of each part", "barrier": "barrier"}


@dataclass(frozen=True)
class Head:
    """``schedule``: as it was compiled; ``table``: as its steps are written. ``name``: of the function. ``even``: it is
    right only for sizes that make all chunks equal. ``file``: what the file is called; None: like the function."""

    schedule: OpTable
    table: OpTable
    names: Names
    name: str
    turns: bool
    even: bool
    file: str | None = None

    @property
    def kind(self) -> CollectiveKind:
        return COLLECTIVES[self.schedule.collective.name]

    @cached_property
    def ensured(self) -> set[int]:
        """The buffers that `ensure` statements name: there are results of a custom collective."""
        ensures = self.schedule.collective.ensures
        return set() if ensures is None else set(ensures.buffer.tolist())

    @cached_property
    def own(self) -> dict[int, str]:
        """The buffers that callers bring, by number, and what the function calls them: results first, as in torch."""
        t = self.schedule
        own = [i for i, b in enumerate(t.buffers) if b.chunks and (b.role != "scratch" or i in self.ensured)]
        own.sort(key=lambda i: t.buffers[i].role == "input")
        return {i: "tensor" if t.buffers[i].role == "data" else self.names.buffers[i] for i in own}

    @property
    def given(self) -> list[str]:
        """The parameters of the function that are tensors."""
        return [] if self.kind.family == "barrier" else [*self.own.values()]

    @property
    def counts_open(self) -> bool:
        """Whether callers may give other counts: what was proved holds for all."""
        c = self.schedule.collective
        return c.counts is not None and not c.counts_read

    @cached_property
    def mixed(self) -> bool:
        """See :func:`schedlang.backends.torch.emit.lengths.mixed`."""
        return mixed(self.table)

    @property
    def compared_with(self) -> str:
        name = self.schedule.collective.name
        return f"torch's {_TORCHS[name]}" if name in _TORCHS else "what its `ensure` statements say"

    # The parts of the file

    def opening(self) -> list[str]:
        """The docstring, and what is imported."""
        t = self.schedule
        params = "".join(f", {k}={_short(v)}" for k, v in t.params.items() if k not in ("ranks", "counts"))
        where = "a table" if t.location is None else t.location.file.rsplit("/", 1)[-1]
        promise = ("every `ensure` holds" if self.kind.family == "custom" else
                   self.kind.doc + ", each contribution counted exactly once" * self.kind.reduces)
        words = _paragraphs(
            f"{t.name}: {self.kind.name} on {t.ranks} ranks, over NCCL on GPUs or Gloo on CPUs.",
            f"Written by schedlang {__version__} from {where} for ranks={t.ranks}{params}. It needs PyTorch only "
            f"(tested with {TESTED}), on any number of hosts.")
        file = self.file or f"{self.name}.py"
        module, known = file.removesuffix(".py"), "In a program:"
        if module == file or not module.isidentifier() or iskeyword(module):
            module, known = self.name, f"In a program, where it has a name that can be imported, like {self.name}.py:"
        words += ["", f"    torchrun --nproc-per-node {t.ranks} {quote(file)}", ""]
        words += _paragraphs(f"compares it with {self.compared_with} and prints a table of times. {known}")
        words += ["", f"    from {module} import {self.name}", f"    {self.name}({', '.join(self.given)})", ""]
        words += _paragraphs(
            f"Proved of the schedule before this was written, for {t.ranks} ranks, whatever the values and however "
            "operations interleave, where connections hold no messages: every send meets its receive, "
            f"nothing deadlocks or races, nothing is read before it is written, and {promise}. The proof is of the "
            "steps below, not of what executes them.", *self._notes())
        words = [printable(line, "?").replace("\\", "/").replace('"""', "'''") for line in words]  # any name goes
        return ["#!/usr/bin/env python3", f'"""{words[0]}', *words[1:], '"""', "", *IMPORTS.splitlines()]

    def _notes(self) -> Iterator[str]:
        if self.schedule.operator is not None:
            yield ("All operators are right with the same steps. Every sum and product rounds to the dtype, in the "
                   "order of the schedule; avg divides once, at the end. uint16, uint32 and uint64 are summed, "
                   "multiplied and combined bit by bit, too, which torch's own collectives do not do over Gloo; min, "
                   "max and avg of them torch cannot compute.")
        host = [self.names.buffers[i] for i, b in enumerate(self.table.buffers) if b.place == "host" and b.chunks]
        if host:
            yield (f"The schedule has {', '.join(host)} in host memory. Here they lie where the tensor does: NCCL "
                   "sends nothing else.")

    def constants(self) -> list[str]:
        """What the schedule is for."""
        c = self.schedule.collective
        lines = [f"RANKS = {self.schedule.ranks}"]
        if c.root is not None:
            lines.append(f"ROOT = {c.root}")
        if c.counts is not None:
            lines.append("# How many elements go from each rank to each other" if c.counts.ndim == 2 else
                         "# How many elements the part of each rank has")
            lines += literal("COUNTS", c.counts)
        divisors = self._divisors()
        if divisors:
            lines += ["# By rank: buffers, chunks in them, and how many values each is combined of",
                      *literal("DIVISORS", divisors)]
        return lines

    def streams(self) -> list[str]:
        """The streams by name, and the process groups."""
        lines = ["STREAMS = {"]
        lines += [f"{INDENT}{quoted(self.table.streams[s])}: {name}," for s, name in self.names.streams.items()]
        groups = ", ".join(map(quoted, self.names.groups.values())) or '"main"'
        return [*lines, "}", "# What messages go by: the caller's process group, and one for each further name",
                f"GROUPS = ({groups},)", f"TURNS = {self.turns}  # whether steps of several streams follow their turns",
                "# Whether it is proved that what a receive writes over is done with wherever its message is sent",
                f"EARLY = {receives_stand_ready(self.table)}"]

    def function(self) -> list[str]:
        """The function for callers."""
        op = self.schedule.operator
        arguments = [*self.given, *["counts=COUNTS"] * self.counts_open, "group=None"]
        if op is not None:
            arguments.append(f'op="{op}"')
        meaning = self.kind.doc
        if self.kind.family == "custom":
            meaning = "each rank ends with what the `ensure` statements of the schedule say"
        lines = [f'"""{meaning[0].upper()}{meaning[1:]}.', "", *_paragraphs(self._usage(), width=WIDTH - len(INDENT)),
                 '"""', *self._cuts()]
        tensors = ", ".join(f'"{self.names.buffers[i]}": {name}' for i, name in self.own.items())
        call = f"group, {'None' if op is None else 'op'}, {{{tensors}}}, starts"
        lines.append(f"execute_padded({call}, part)" if self.mixed else f"execute({call})")
        if op is not None:
            lines += self._average()
        return [f"def {self.name}({', '.join(arguments)}):", *(INDENT + line if line else "" for line in lines)]

    def _usage(self) -> str:
        """What callers have to know, besides the meaning."""
        t, family = self.schedule, self.kind.family
        if family == "barrier":
            return "A message is one byte."
        words = {"whole": "Any shape.", "custom": "All chunks have as many elements.",
                 "vector": f"`{'counts' if self.counts_open else 'COUNTS'}` are the sizes, the same on all ranks.",
                 "blocked": f"The long buffer is {t.ranks} equal blocks."}[family]
        only = next((b for b in t.buffers if b.only is not None), None)
        if only is not None:
            words += f" `{only.name}` is None at all ranks but {only.only}."
        if self.even:
            words += " Only sizes that make all chunks equal are right with this schedule."
        return (f"{words} Tensors have one dtype and are contiguous. The call returns when the result is there on a "
                "CPU, and on a GPU when the current stream is to have it.")

    # Sizes

    def _cuts(self) -> list[str]:
        """The lines that check sizes and work out where chunks start."""
        t = self.schedule
        lines, starts, part = {"barrier": self._barrier, "custom": self._custom, "whole": self._whole,
                               "blocked": self._blocked, "vector": self._vector}[self.kind.family]()
        writes = (self.table.op != Op.SEND) & (self.table.op < Op.RECORD)
        for i, name in self.own.items():
            written = bool((writes & (self.table.buffer == i)).any())
            if t.buffers[i].role == "input" and i not in self.ensured and written:
                absent = f"None if {name} is None else " if t.buffers[i].only is not None else ""
                lines.append(f"{name} = {absent}{name}.clone()  # the schedule writes there")
        scratch = [i for i in self.names.buffers if i not in starts]
        if (scratch or self.mixed) and part != "part":
            lines.append(f"part = {part}")
        starts |= {i: f"even_chunks({self.table.buffers[i].chunks}, part)" for i in scratch}
        cuts = (f'{INDENT}"{name}": {starts[i]},' for i, name in self.names.buffers.items())
        return [*lines, "starts = {", *cuts, "}"]

    def _barrier(self) -> tuple[list[str], dict[int, str], str]:
        lines = ['on_gpu = dist.get_backend(group) == "nccl"',
                 'device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")',
                 "tensor = torch.zeros(1, dtype=torch.uint8, device=device)"]
        return lines, dict.fromkeys(self.own, "even_chunks(1, 1)"), "1"

    def _custom(self) -> tuple[list[str], dict[int, str], str]:
        t = self.schedule
        measure = measured(t)
        i = next((i for i in self.own if t.buffers[i] is measure), next(iter(self.own)))
        name, size = self.own[i], t.buffers[i].chunks
        lines = [f"part = {name}.numel() // {size}" if size > 1 else f"part = {name}.numel()"]
        lines += [f'{name} = sized({name}, part{f" * {t.buffers[i].chunks}" * (t.buffers[i].chunks > 1)}, "{name}")'
                  for i, name in self.own.items()]
        return lines, {i: f"even_chunks({t.buffers[i].chunks}, part)" for i in self.own}, "part"

    def _whole(self) -> tuple[list[str], dict[int, str], str]:
        t = self.schedule
        name = next(n for i, n in self.own.items() if t.buffers[i].role in ("data", "input"))
        lines = [f"elements = {name}.numel()", *self._even("elements", t.chunks)]
        lines += [f'{n} = sized({n}, elements, "{n}")' for n in self.own.values()]
        return lines, {i: f"divided(elements, {t.chunks})" for i in self.own}, f"divided(elements, {t.chunks})[1]"

    def _blocked(self) -> tuple[list[str], dict[int, str], str]:
        t, kind = self.schedule, self.kind
        per = t.chunks // t.ranks
        roles = {t.buffers[i].role: name for i, name in self.own.items()}
        if "data" in roles:
            elements = "tensor.numel()"
        elif kind.long == "both":
            elements = f"{roles['input']}.numel()"
        else:
            elements = f"{roles['input' if kind.long == 'output' else 'output']}.numel() * RANKS"
        lines, starts = [f"elements = {elements}", *self._even("elements // RANKS", per)], {}
        for i, name in self.own.items():
            long = t.buffers[i].role == "data" or kind.long in ("both", t.buffers[i].role)
            lines.append(f'{name} = sized({name}, elements{"" if long else " // RANKS"}, "{name}")')
            starts[i] = f"blocks(elements, RANKS, {per})" if long else f"divided(elements // RANKS, {per})"
        return lines, starts, f"divided(elements // RANKS, {per})[1]"

    def _vector(self) -> tuple[list[str], dict[int, str], str]:
        t, kind = self.schedule, self.kind
        counts = "counts" if self.counts_open else "COUNTS"
        lines, starts = ["rank = dist.get_rank(group)"], {}
        for i, name in self.own.items():
            role = t.buffers[i].role
            if kind.long == "both":
                lengths = f"row[rank] for row in {counts}" if role == "output" else f"*{counts}[rank]"
            else:
                lengths = f"*{counts}" if role in ("data", kind.long) else f"{counts}[rank]"
            starts[i] = f"{self.names.buffers[i]}_starts"
            lines += [f"{starts[i]} = lengths_to_starts([{lengths}])",
                      f'{name} = sized({name}, {starts[i]}[-1], "{name}")']
        return lines, starts, f"max(map(max, {counts}))" if kind.long == "both" else f"max({counts})"

    def _even(self, size: str, parts: int) -> list[str]:
        return [f"if {size} % {parts}:",
                f'{INDENT}raise ValueError(f"{{{size}}} elements do not divide into {parts} equal chunks, which this '
                'schedule needs")'] if self.even else []

    # Averages

    def _divisors(self) -> list[list[tuple[str, int, int]]]:
        """What averages of a custom collective are divided by, rank by rank; empty where there are none."""
        ensures = self.schedule.collective.ensures
        if ensures is None or self.schedule.operator is None:
            return []
        found: list[list[tuple[str, int, int]]] = [[] for _ in range(self.schedule.ranks)]
        for b, r, at, n in zip(ensures.buffer.tolist(), ensures.rank.tolist(), ensures.chunk.tolist(),
                               np.diff(ensures.starts).tolist(), strict=True):
            if n > 1:
                found[r].append((self.own[b], at, n))
        return found if any(found) else []

    def _average(self) -> list[str]:
        """The lines that divide, where the operator is avg."""
        t, kind = self.schedule, self.kind
        if kind.family == "custom":
            tensors = ", ".join(f'"{name}": {name}' for name in self.own.values())
            return ['if op == "avg":', f"{INDENT}for name, at, count in DIVISORS[dist.get_rank(group)]:",
                    f"{INDENT * 2}divide({{{tensors}}}[name][at * part : (at + 1) * part], count)"] \
                if self._divisors() else []
        i, name = next((i, name) for i, name in self.own.items() if t.buffers[i].role in ("output", "data"))
        lines = [f'if op == "avg"{" and dist.get_rank(group) == ROOT" * (kind.name == "reduce")}:']
        if t.buffers[i].role == "data" and kind.long == "input":        # of the buffer only the own block is a result
            per = t.chunks // t.ranks
            lines += [f'{INDENT}cuts, own = starts["{self.names.buffers[i]}"], dist.get_rank(group) * {per}']
            name += f"[cuts[own] : cuts[own + {per}]]"
        return [*lines, f"{INDENT}divide({name}, RANKS)"]


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _paragraphs(*texts: str, width: int = WIDTH) -> list[str]:
    """Texts as lines, an empty one between them."""
    lines: list[str] = []
    for text in texts:
        lines += [""] * bool(lines) + wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return lines
