"""What runs are made on: real arrays, or contributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.interpret.conditions import Location, conditions
from schedlang.interpret.outcome import Wrong
from schedlang.interpret.sizes import Sizes, always_empty
from schedlang.interpret.values import combiner, finish
from schedlang.ir.table import Array, OpTable
from schedlang.ops import COLLECTIVES
from schedlang.running.dtypes import accumulator, named, of_array, require_defined


class Payload(Protocol):
    """The values of a run. ``memory``: what is initialised at the start; ``capacity``: see
    :class:`~.machine.Machine`."""

    memory: dict[Location, Array]
    capacity: Mapping[Location, int] | None

    def combine(self, old: Array, new: Array) -> Array:
        """old (+) new."""

    def judge(self, memory: Mapping[Location, Array]) -> tuple[list[dict[str, Array]], tuple[Wrong, ...]]:
        """The outputs per rank, and which locations of the result are wrong."""


class Symbols:
    """Values that say what they are made of: how often each initial value is contained in them, followed by a hash of
    the tree of reductions they come from, in which the two sides of a reduction are not told apart."""

    def __init__(self, table: OpTable) -> None:
        self._table, self._conditions = table, conditions(table)
        self._names = self._conditions.initial
        self._index = {name: i for i, name in enumerate(self._names)}
        self._empty = always_empty(table)
        leaves = np.eye(len(self._names), len(self._names) + 1, dtype=np.int64)
        leaves[:, -1] = np.arange(len(self._names))
        self.memory: dict[Location, Array] = {name: leaves[i] for i, name in enumerate(self._names)}
        for location in self._empty:
            self.memory.setdefault(location, np.zeros(len(self._names) + 1, np.int64))
        self.capacity: Mapping[Location, int] | None = None

    def combine(self, old: Array, new: Array) -> Array:
        value: Array = old + new
        value[-1] = hash(tuple(sorted((int(old[-1]), int(new[-1])))))
        return value

    def judge(self, memory: Mapping[Location, Array]) -> tuple[list[dict[str, Array]], tuple[Wrong, ...]]:
        wrong: list[Wrong] = []
        for location, sources in self._conditions.results.items():
            if location in self._empty:
                continue
            expected = np.bincount([self._index[s] for s in sources], minlength=len(self._names))
            held = memory.get(location)
            if held is None or not np.array_equal(held[:-1], expected):
                wrong.append(Wrong(location, self._counts(expected), None if held is None else self._counts(held[:-1])))
        return [{} for _ in range(self._table.ranks)], tuple(wrong)

    def agreement(self, memory: Mapping[Location, Array]) -> bool | None:
        """Whether all ranks hold each element of the result from one and the same tree; None where the collective gives
        ranks different results."""
        if not COLLECTIVES[self._table.collective.name].shared:
            return None
        trees: dict[tuple[int, int], set[int | None]] = {}
        for rank, buffer, chunk in self._conditions.results:
            held = memory.get((rank, buffer, chunk))
            if (rank, buffer, chunk) not in self._empty:
                trees.setdefault((buffer, chunk), set()).add(None if held is None else int(held[-1]))
        return all(len(found) == 1 for found in trees.values())

    def _counts(self, vector: Array) -> dict[Location, int]:
        return {self._names[i]: int(vector[i]) for i in np.flatnonzero(vector)}


class Numbers:
    """Real arrays of one dtype; ``inputs`` as for :meth:`schedlang.backend.Backend.run`.

    Raises SchedError: SL801 where the arrays do not fit the table, SL802 where their sizes do not, SL803 for the dtype.
    """

    def __init__(self, table: OpTable, inputs: Sequence[Mapping[str, Array] | None], op: str | None = None,
                 accumulate: str | None = None) -> None:
        self._table, self._conditions = table, conditions(table)
        self._op = op or table.collective.op or "sum"
        arrays = [(r, name, np.asarray(a)) for r, given in enumerate(inputs) for name, a in (given or {}).items()]
        dtypes = {a.dtype for _, _, a in arrays} or {np.dtype(np.float32)}
        if len(inputs) != table.ranks or len(dtypes) > 1:
            raise SchedError(error("SL801", f"the schedule takes the inputs of {table.ranks} ranks, of one dtype; "
                                            f"given are {len(inputs)}, of {', '.join(sorted(map(str, dtypes)))}"))
        self._dtype = dtypes.pop()
        kind = of_array(np.empty(0, self._dtype))
        if op is not None or table.operator is not None:
            require_defined(self._op, kind)
        held = accumulator(accumulate, kind).numpy
        self._sizes = Sizes(table, _elements(table, {(r, name): a.size for r, name, a in arrays}))
        self._combine = combiner(self._op)
        length = {(r, b, c): n for r in range(table.ranks) for b in range(len(table.buffers))
                  for c, n in enumerate(self._sizes.of(b, r))}
        self._length = length
        self.capacity: Mapping[Location, int] | None = length
        self.memory: dict[Location, Array] = {}
        for (rank, buffer), chunks in _by_buffer(self._conditions.initial).items():
            name = table.buffers[buffer].name
            given = next((a for r, n, a in arrays if (r, n) == (rank, name)), None)
            lengths = [length[rank, buffer, c] for c in chunks]
            if given is None or given.ndim != 1 or len(given) != sum(lengths):
                what = "nothing" if given is None else f"an array of shape {given.shape}"
                raise SchedError(error("SL801", f"rank {rank} needs {sum(lengths)} elements in {name}, in one "
                                                f"dimension, and is given {what}"))
            cuts = np.cumsum([0, *lengths])
            for chunk, (start, stop) in zip(chunks, pairwise(cuts), strict=True):
                self.memory[rank, buffer, chunk] = given[start:stop].astype(held)
        self._initial = dict(self.memory)
        for location in self._sizes.without_elements():
            self.memory.setdefault(location, np.zeros(0, held))

    @classmethod
    def random(cls, table: OpTable, seed: int, op: str | None = None, dtype: str = "int64",
               elements: int | None = None, accumulate: str | None = None) -> Numbers:
        """Random values of a dtype; ``elements`` in the sense of :class:`Sizes`, None: one a chunk."""
        kind = named(dtype)
        generator = np.random.default_rng(seed)
        sizes = Sizes.nominal(table) if elements is None else Sizes(table, elements)
        inputs: list[dict[str, Array]] = [{} for _ in range(table.ranks)]
        for (rank, buffer), chunks in _by_buffer(conditions(table).initial).items():
            length = sum(sizes.of(buffer, rank)[c] for c in chunks)
            if kind.kind == "f":
                values = generator.normal(size=length) * 2.0 ** generator.integers(-8, 8, length)
            else:
                values = generator.integers(0, min(int(kind.largest) + 1, 1 << 40), length)
            inputs[rank][table.buffers[buffer].name] = values.astype(kind.numpy)
        return cls(table, inputs, op, accumulate)

    def combine(self, old: Array, new: Array) -> Array:
        return self._combine(old, new)

    def judge(self, memory: Mapping[Location, Array]) -> tuple[list[dict[str, Array]], tuple[Wrong, ...]]:
        results = self._conditions.results
        ended = dict(memory)
        for location, sources in results.items():
            if location in memory:
                ended[location] = finish(self._op, memory[location], len(sources))
        judged = (self._compare(at, sources, ended.get(at)) for at, sources in results.items())
        wrong = tuple(w for w in judged if w is not None)
        outputs: list[dict[str, Array]] = [{} for _ in range(self._table.ranks)]
        named = _by_buffer(tuple(results))
        for (rank, buffer), chunks in named.items():
            at = self._table.buffers[buffer]
            if self._table.collective.name == "custom":
                chunks = list(range(at.chunks))
            outputs[rank][at.name] = self._contents(rank, buffer, chunks, ended)
        return outputs, wrong

    def _compare(self, location: Location, sources: Sequence[Location], held: Array | None) -> Wrong | None:
        if self._dtype.kind not in "iub" or self._length[location] == 0:
            return None
        expected = self._initial[sources[0]]
        for source in sources[1:]:
            if len(self._initial[source]) != len(expected):
                return Wrong(location, expected, held)
            expected = self._combine(expected, self._initial[source])
        expected = finish(self._op, expected, len(sources))
        return None if held is not None and np.array_equal(held, expected) else Wrong(location, expected, held)

    def _contents(self, rank: int, buffer: int, chunks: Sequence[int], memory: Mapping[Location, Array]) -> Array:
        """A buffer's chunks in one array; zero where nothing was written."""
        parts = [np.zeros(0, self._dtype)]
        for chunk in chunks:
            part = np.zeros(self._length[rank, buffer, chunk], self._dtype)
            value = memory.get((rank, buffer, chunk), part)
            part[: len(value)] = value.astype(self._dtype)
            parts.append(part)
        return np.concatenate(parts)


def _by_buffer(locations: Sequence[Location]) -> dict[tuple[int, int], list[int]]:
    found: dict[tuple[int, int], list[int]] = {}
    for rank, buffer, chunk in sorted(locations):
        found.setdefault((rank, buffer), []).append(chunk)
    return found


def _elements(table: OpTable, given: Mapping[tuple[int, str], int]) -> int:
    """The element count in the sense of :class:`Sizes` that the arrays given have."""
    kind = COLLECTIVES[table.collective.name]
    roles = {b.name: b for b in table.buffers}
    for (_, name), length in given.items():
        if name not in roles:
            continue
        if kind.family == "custom":
            parts = max(1, roles[name].chunks)
            if length % parts:
                raise SchedError(error("SL802", f"{length} elements do not divide into {parts} equal chunks of {name}",
                                       table.collective.location or table.location))
            return length // parts
        if kind.family == "blocked" and kind.long == "output":
            return length * table.ranks
        return length
    return 0
