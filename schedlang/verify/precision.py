"""Range and precision of a schedule's results in a dtype: overflow (SL613), and sums that stall (SL614)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from schedlang.diagnostics import Diagnostic, Note, warning
from schedlang.ir.origin import at_row
from schedlang.ir.table import Array, OpTable
from schedlang.ir.words import number_text
from schedlang.verify.arithmetic import COMBINED, Arithmetic
from schedlang.verify.values.conditions import Conditions
from schedlang.verify.values.shapes import Shapes
from schedlang.verify.values.walk import Program, Walk

ORDINARY = 256
"""That inputs below this size can overflow is a finding; else what inputs are safe is a fact of the verdict only."""


class Precision:
    """What a table that is proved right does in a dtype. Of schedules that combine nothing, or whose operator neither
    grows nor rounds, there is nothing to say but that."""

    def __init__(self, table: OpTable, program: Program, conditions: Conditions, arithmetic: Arithmetic) -> None:
        self.table, self.program, self.conditions, self.arithmetic = table, program, conditions, arithmetic
        self.op = table.collective.op or ""
        self.facts: dict[str, Any] = {"dtype": arithmetic.dtype.name}
        self.diagnostics: list[Diagnostic] = []
        if self.op not in COMBINED or not len(conditions.results):
            return
        self.shapes = Shapes()
        walk = Walk(program, [self.shapes], conditions)
        walk.run()
        self.shape = walk.state[conditions.results, 1].astype(np.int64)
        self.which, self.first, self.count = np.unique(self.shape, return_index=True, return_counts=True)
        if max(self.shapes.terms[n] for n in self.which.tolist()) > 1:
            self.diagnostics = [*self._overflow(), *self._stalled()]

    def results(self, value: Any) -> Array:
        """What each result is where all inputs are ``value``, in the order of the conditions' results."""
        inputs = np.array([value]).astype(self.arithmetic.dtype.numpy)
        found = self.arithmetic.results(self.shapes, self.which, inputs, self.op)[:, 0]
        return np.asarray(found[np.searchsorted(self.which, self.shape)])

    def _overflow(self) -> Iterator[Diagnostic]:
        arithmetic, dtype = self.arithmetic, self.arithmetic.dtype
        largest = arithmetic.largest(self.shapes, self.which, self.op)
        self.facts["largest_input"] = _plain(largest)
        if arithmetic.held != dtype:
            self.facts["accumulate"] = arithmetic.held.name
        more = arithmetic.next_larger(largest)
        if more is None or float(largest) >= ORDINARY:
            return
        given = np.array([more], dtype.numpy)
        found = arithmetic.results(self.shapes, self.which, given, self.op)[:, 0]
        terms = np.array([self.shapes.terms[n] for n in self.which.tolist()])
        # Of those that overflow there, the one with the fewest terms; of integers the one with the most has to.
        over = ~np.isfinite(found.astype(np.float64)) if dtype.kind == "f" else terms == terms.max()
        at = int(np.flatnonzero(over)[np.argmin(terms[over])])
        place = self.conditions.locations.name(int(self.conditions.results[self.first[at]]))
        kind = {"sum": "a sum", "avg": "the sum of an average", "prod": "a product"}[self.op]
        held = "" if arithmetic.held == dtype else f", held in {arithmetic.held.name} meanwhile"
        least = f"inputs of {text(more)} and more" if float(largest) > 0 or dtype.kind == "f" else "all inputs but 0"
        bound = f"with inputs up to {text(largest)} it cannot" if float(largest) > 0 else "only 0 is safe"
        yield at_row(warning(
            "SL613", f"{kind} of {terms[at]:,} contributions overflows {dtype.name}{held} with {least}: {text(more)} "
            f"on every rank gives {text(found[at])} in {place}; {bound}",
            count=int(self.count[over].sum()), help=self._more_range(), dtype=dtype.name,
            largest_input=_plain(largest), contributions=int(terms[at]),
            place=list(self.conditions.locations.where(int(self.conditions.results[self.first[at]])))),
            self.table, self._writer(at))

    def _more_range(self) -> str:
        dtype = self.arithmetic.dtype
        wide = {"float16": "bfloat16, float32"}.get(dtype.name, "float64" if dtype.kind == "f" else "a wider integer")
        help = f"scale the inputs down first, or use a dtype of more range: {wide}"
        if self.op == "avg" and dtype.name == "float16" and self.arithmetic.held == dtype:
            help += "; `run --accumulate float32` divides before it rounds to float16"
        return help

    def _stalled(self) -> Iterator[Diagnostic]:
        """Said where a sum of ones is further off than a balanced tree could be: with n ones and the unit roundoff u
        that is n ((1 + u)^ceil(log2 n) - 1), since each goes through so many additions, each of which rounds once
        (Higham, Accuracy and Stability of Numerical Algorithms, 4.2)."""
        arithmetic, dtype = self.arithmetic, self.arithmetic.dtype
        if dtype.kind != "f" or self.op == "prod":
            return
        found = arithmetic.results(self.shapes, self.which, np.ones(1, dtype.numpy), self.op)[:, 0].astype(np.float64)
        terms = np.array([self.shapes.terms[n] for n in self.which.tolist()])
        due = terms.astype(np.float64) if self.op == "sum" else np.ones(len(terms))
        depth = np.array([(int(n) - 1).bit_length() for n in terms])
        allowed = (1 + arithmetic.held.roundoff) ** depth * (1 + dtype.roundoff) - 1
        with np.errstate(all="ignore"):
            off = np.abs(found - due) / due
        worst = int(np.argmax(off))
        self.facts |= {"ones": _plain(dtype.numpy.type(found[worst])), "ones_due": _plain(dtype.numpy.type(due[worst]))}
        bad = np.isfinite(found) & (off > allowed)
        if not bad.any():
            return
        at = int(np.argmax(np.where(bad, off, -1)))
        place = self.conditions.locations.name(int(self.conditions.results[self.first[at]]))
        notes = []
        reached = self._reached(int(self.which[at]))
        if reached < terms[at]:
            notes.append(Note(f"{reached:,} of them make as much already; what is added after that is lost"))
        wider = "float64" if arithmetic.held.name == "float32" else "float32"
        help = ("add numbers of like size, as halving-doubling and trees do; or hold the sums in a wider dtype: "
                f"`run --accumulate {wider}`")
        yield at_row(warning(
            "SL614", f"in {arithmetic.held.name} the {'sum' if self.op == 'sum' else 'average'} of {terms[at]:,} ones "
            f"is {text(dtype.numpy.type(found[at]))} in {place}, and should be {text(dtype.numpy.type(due[at]))}: a "
            "long chain of additions loses what is small beside the sum",
            notes=notes, count=int(self.count[bad].sum()), help=help, dtype=dtype.name, ones=_plain(found[at]),
            due=_plain(due[at]), contributions=int(terms[at]),
            place=list(self.conditions.locations.where(int(self.conditions.results[self.first[at]])))),
            self.table, self._writer(at))

    def _reached(self, shape: int) -> int:
        """How many ones a sum of this shape takes to come to its value."""
        values = self.shapes.values(np.ones(1, self.arithmetic.held.numpy), COMBINED[self.op])[:, 0]
        while True:     # two ones make two in every dtype, so this ends above the single ones
            sides = self.shapes.left[shape], self.shapes.right[shape]
            heavy = max(sides, key=lambda n: float(values[n]))
            if values[heavy] != values[shape]:
                break
            shape = heavy
        return self.shapes.terms[shape]

    def _writer(self, at: int) -> int:
        """The row that writes the example of a shape last; there is one, since it is a sum of several."""
        c, place = self.program.carriers, int(self.conditions.results[self.first[at]])
        writers = np.flatnonzero(c.target == place)
        return int(c.receiver[writers[np.argmax(c.lands[writers])]])


def _plain(value: Any) -> int | float:
    """A number of a dtype as Python's: integers below 1e15 exactly, others as the dtype writes them."""
    if np.asarray(value).dtype.kind in "iu":
        return int(value)
    number = float(value)
    return number if number.is_integer() and abs(number) < 1e15 else float(str(value))


def text(value: Any) -> str:
    """A number of a dtype in words."""
    return number_text(_plain(value))
