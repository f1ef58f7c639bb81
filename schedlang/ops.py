"""The one table of what the language is made of: operation kinds, reduction operators, collectives, built-in functions.

The verifier, the back ends, the documentation, the editor grammars and the tests all read these; none keeps its own
list.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Op(IntEnum):
    """The kinds of row in an op table; ``.name.lower()`` is the spelling in the JSON form."""

    SEND = 0
    RECV = 1
    REDUCE_RECV = 2
    COPY = 3
    REDUCE = 4
    RECORD = 5
    WAIT = 6


@dataclass(frozen=True, slots=True)
class ReduceOp:
    """A reduction operator: commutative; ``integers_only`` where floats have no meaning; ``divides`` where the sum is
    divided by the number of ranks once at the end (integers truncate toward zero)."""

    name: str
    doc: str
    integers_only: bool = False
    divides: bool = False


REDUCE_OPS: dict[str, ReduceOp] = {
    op.name: op
    for op in (
        ReduceOp("sum", "the sum"),
        ReduceOp("prod", "the product"),
        ReduceOp("min", "the smallest"),
        ReduceOp("max", "the largest"),
        ReduceOp("avg", "the sum, divided once at the end by the number of ranks", divides=True),
        ReduceOp("band", "bitwise and", integers_only=True),
        ReduceOp("bor", "bitwise or", integers_only=True),
        ReduceOp("bxor", "bitwise exclusive or", integers_only=True),
    )
}


@dataclass(frozen=True, slots=True)
class CollectiveKind:
    """One collective.

    ``arguments``: what stands in the parentheses, in order (``op``, ``root``, ``counts``).
    ``family``: ``whole`` (one buffer of E elements, ``data`` unless out of place), ``blocked`` (a long buffer of
    ``ranks`` equal blocks), ``vector`` (parts sized by ``counts``), ``barrier`` or ``custom``.
    ``long``: which of ``input``/``output`` is the long buffer of a blocked or vector collective (``both`` for
    all-to-all).
    ``rooted``: there is a root. ``shared``: every rank ends with the same result, so *agreement* is judged.
    """

    name: str
    arguments: tuple[str, ...]
    family: str
    long: str | None
    doc: str
    shared: bool = False

    @property
    def reduces(self) -> bool:
        """Whether it has an operator."""
        return "op" in self.arguments

    @property
    def rooted(self) -> bool:
        """Whether it has a root."""
        return "root" in self.arguments


COLLECTIVES: dict[str, CollectiveKind] = {
    c.name: c
    for c in (
        CollectiveKind("allreduce", ("op",), "whole", None,
                       "every rank ends with the reduction of all ranks' buffers", shared=True),
        CollectiveKind("reduce", ("op", "root"), "whole", None,
                       "the root ends with the reduction of all ranks' buffers"),
        CollectiveKind("broadcast", ("root",), "whole", None, "every rank ends with the root's buffer", shared=True),
        CollectiveKind("reduce_scatter", ("op",), "blocked", "input", "rank r ends with block r of the reduction"),
        CollectiveKind("allgather", (), "blocked", "output",
                       "every rank ends with the blocks of all ranks", shared=True),
        CollectiveKind("scatter", ("root",), "blocked", "input", "rank r ends with block r of the root's buffer"),
        CollectiveKind("gather", ("root",), "blocked", "output", "the root ends with the blocks of all ranks"),
        CollectiveKind("alltoall", (), "blocked", "both", "block d of rank s ends as block s of rank d"),
        CollectiveKind("alltoallv", ("counts",), "vector", "both",
                       "part d of rank s, of counts[s][d] elements, ends as part s of rank d"),
        CollectiveKind("allgatherv", ("counts",), "vector", "output",
                       "every rank ends with all parts; rank r's has counts[r] elements", shared=True),
        CollectiveKind("reduce_scatterv", ("op", "counts"), "vector", "input",
                       "rank r ends with part r, of counts[r] elements, of the reduction"),
        CollectiveKind("barrier", (), "barrier", None, "no rank leaves before every rank has entered"),
        CollectiveKind("custom", ("op",), "custom", None, "what the `ensure` statements say; the op is optional"),
    )
}


@dataclass(frozen=True, slots=True)
class Builtin:
    """A built-in function of the language; ``arity`` is the number of arguments, the least one where ``variadic``."""

    name: str
    arity: int
    doc: str
    variadic: bool = False


BUILTINS: dict[str, Builtin] = {
    b.name: b
    for b in (
        Builtin("min", 1, "the smallest of its arguments, or of one list", variadic=True),
        Builtin("max", 1, "the largest of its arguments, or of one list", variadic=True),
        Builtin("abs", 1, "the absolute value"),
        Builtin("log2", 1, "the floor of the binary logarithm; its argument is at least 1"),
        Builtin("ceil_log2", 1, "the ceiling of the binary logarithm; its argument is at least 1"),
        Builtin("ceil_div", 2, "the quotient, rounded up"),
        Builtin("gcd", 2, "the greatest common divisor"),
        Builtin("is_pow2", 1, "whether the argument is a power of two"),
        Builtin("len", 1, "the length of a list"),
    )
}

MAX_OPS = 1 << 28
"""The default of ``--max-ops``: how many rows or loop turns an expansion may have."""

MAX_DEPTH = 1000
"""How deep ``fn`` may recurse."""
