"""What differs from file to file beside the streams: the opening comment, the configuration, the kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from schedlang.backends.cuda.body import Names
from schedlang.backends.cuda.normal import Normal
from schedlang.codegen.words import INDENT, printable
from schedlang.ir.table import OpTable
from schedlang.ops import COLLECTIVES
from schedlang.running.dtypes import Dtype
from schedlang.version import __version__

TYPES = {
    "float16": "Half", "bfloat16": "Bfloat16", "float32": "float", "float64": "double",
    "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
    "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "unsigned long long",
    "bool": "bool",
}
"""What the dtypes are called in the file."""

OPERATORS = {"sum": "Sum", "avg": "Sum", "prod": "Prod", "min": "Min", "max": "Max", "band": "Band", "bor": "Bor",
             "bxor": "Bxor"}

SPACE = "schedule"
"""The namespace of what is different from file to file. Headers of systems and compilers declare names of their own for
the whole file, and nobody knows them all."""

ARITHMETIC = {
    "mod": ("(a % n + n) % n", "The remainder, from 0 to n - 1, for any a"),
    "div": ("a < 0 ? -1 - (-1 - a) / n : a / n", "The quotient, rounded down, for any a"),
}
"""Functions that formulas may need."""


@cache
def copied(name: str) -> list[str]:
    """The lines of a file of this folder that goes into every source."""
    return (Path(__file__).parent / name).read_text("utf-8").rstrip("\n").splitlines()


def names_of(*texts: list[str]) -> set[str]:
    """All words of the lines of texts that declare something for the whole file: those that are not indented."""
    declaring = [line for lines in texts for line in lines if line[:1] not in (" ", "/")]
    return {word for line in declaring for word in re.findall(r"\w+", line)}


@dataclass(frozen=True)
class Head:
    """The parts round the streams. ``table``: the schedule; ``normal``: what is executed; ``calls``: how many times the
    streams call what a lane does; ``faults``: mistakes that tests put in."""

    table: OpTable
    normal: Normal
    names: Names
    dtype: Dtype
    op: str | None
    events: int
    calls: int
    faults: tuple[str, ...]

    def opening(self) -> list[str]:
        """What the file is."""
        t = self.table
        where = t.location
        file = f" from {printable(where.file.rsplit('/', 1)[-1], '?')}" if where is not None else ""
        values = {"ranks": t.ranks, **{k: v for k, v in t.params.items() if isinstance(v, (int, bool))}}
        params = ", ".join(f"{name}={value}" for name, value in values.items())
        op = f" ({self.op})" if self.op is not None else ""
        words = [
            f"{printable(t.name, '?')}: {t.collective.name}{op} of {self.dtype.name} on {t.ranks} "
            f"rank{'s' * (t.ranks != 1)}, as one CUDA kernel.",
            "",
            f"Written by schedlang {__version__}{file} for {params}.",
            "A lane, which is a rank and a stream, has Args.blocks blocks. Each walks the whole lane for its own share",
            "of every chunk, with flags of its own. Receivers read messages where they stand, in the memory of the",
            "sender: a send is a flag that says so, and another flag tells the sender that its memory is free again.",
            "The schedule is at the end of this file; what stands before it is the same in all such files.",
        ]
        return [f"// {word}".rstrip().rstrip("\\") for word in words]

    def configuration(self) -> list[str]:
        """What the parts that are copied in have to know."""
        n = self.normal
        return [
            *(f"#define SCHEDLANG_FAULT_{fault.upper()}" for fault in self.faults),
            f"#define SCHEDLANG_CALLS {self.calls}  // of what a lane does: many are not inlined",
            f"using T = {TYPES[self.dtype.name]};  // {self.dtype.name}",
            f"using Op = {OPERATORS[self.op or 'sum']};" + ("  // divided outside, once" if self.op == "avg" else ""),
            f"constexpr int RANKS = {self.table.ranks};",
            f"constexpr int BUFFERS = {len(n.table.buffers)};",
            f"constexpr int TAGS = {n.tags};      // of messages of one rank to another",
            f"constexpr int EVENTS = {self.events};",
            f"constexpr int STREAMS = {max(1, len(self.names.streams))};",
            f"constexpr int MESSAGES = {n.messages};  // of one tag, at most",
            f"constexpr int QUEUE = {n.queue};     // sends that may be under way in a lane",
            f"constexpr bool PER_RANK = {str(per_rank(self.table)).lower()};  // whether lengths differ between ranks",
        ]

    def beginning(self, streams: str) -> list[str]:
        """Where the schedule begins: the names of buffers, and what the text of the streams needs."""
        lines = ["// " + "-" * 116, "// The schedule.", "",
                 f"namespace {SPACE} {{  // so that buffers may be called as functions of systems: time, exp", ""]
        code = re.sub("//.*", "", streams)                  # compilers warn of names that nothing uses
        lines += [f"constexpr int {name} = {b};" for b, name in self.names.buffers.items()
                  if re.search(rf"\b{name}\b", code)]
        for name, (text, meaning) in ARITHMETIC.items():
            if re.search(rf"\b{name}\(", streams):
                lines += ["", f"// {meaning}", f"__device__ constexpr int {name}(int a, int n) {{ return {text}; }}"]
        return lines

    def ending(self) -> list[str]:
        """What ends the streams."""
        return [f"}}  // namespace {SPACE}"]

    def kernel(self, programs: Sequence[int]) -> list[str]:
        """The kernel: each block finds its lane."""
        return [*self._kernel(programs)]

    def _kernel(self, programs: Sequence[int]) -> Iterator[str]:
        yield 'extern "C" __global__ void __launch_bounds__(MOST_THREADS)'
        yield "schedlang_kernel(const __grid_constant__ Args args) {"
        yield f"{INDENT}Lane lane(args);"
        yield f"{INDENT}switch (lane.program) {{"
        for k, stream in enumerate(programs):
            yield f"{INDENT * 2}case {k}: {SPACE}::{self.names.streams[stream]}(lane); break;"
        yield f"{INDENT}}}"
        yield f"{INDENT}lane.finish();"
        yield "}"


def per_rank(table: OpTable) -> bool:
    """Whether chunks of one number have different lengths on different ranks."""
    return COLLECTIVES[table.collective.name].family == "vector" and not table.collective.inplace
