"""Proofs about op tables, one file a proof; :func:`verify` is their table of contents.

For every interleaving that the semantics allows and every input: transfers match, nothing deadlocks, nothing races,
nothing uninitialised is read, and every result holds what the collective says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from schedlang.diagnostics import Diagnostic, SchedError, Severity, error
from schedlang.ir import legal
from schedlang.ir.table import OpTable
from schedlang.ops import COLLECTIVES
from schedlang.verify import barrier, deadlock, facts, matching, races, room
from schedlang.verify.dataflow import judge
from schedlang.verify.ensures import ensured
from schedlang.verify.lengths import elements, shorter_parts
from schedlang.verify.remarks import remarks
from schedlang.verify.sends import DEFAULT, Sends, depth_words, resolve
from schedlang.verify.steps import steps
from schedlang.verify.timing.connections import Matching
from schedlang.verify.timing.order import Order, order
from schedlang.verify.timing.rounds import critical_path
from schedlang.verify.timing.slots import Slots, slots
from schedlang.verify.useless import useless
from schedlang.verify.values.carriers import Carriers, carriers
from schedlang.verify.values.conditions import Conditions, conditions
from schedlang.verify.values.walk import Program

if TYPE_CHECKING:
    from schedlang.verify.arithmetic import Arithmetic

__all__ = ["DEFAULT", "Proof", "Sends", "Verdict", "verify"]

State = Literal["proved", "failed", "not judged"]


@dataclass(frozen=True, slots=True)
class Proof:
    """The outcome of one proof. ``detail`` says how it was proved, or why it was not judged."""

    name: str
    state: State
    detail: str = ""


@dataclass(frozen=True)
class Verdict:
    """What was found about a table.

    ``proofs``: one for each property, in order. ``facts``: numbers and words about the schedule, values that JSON has;
    docs/commands.md lists them. ``sends``: the model of buffering that was used.
    """

    table: OpTable = field(repr=False)
    sends: Sends
    proofs: tuple[Proof, ...]
    diagnostics: tuple[Diagnostic, ...]
    facts: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        """Whether every property was proved: no finding is an error, and nothing but agreement, which many collectives
        do not have, was left open."""
        proved = all(p.state == "proved" for p in self.proofs if p.name != "agreement")
        return proved and all(d.severity < Severity.ERROR for d in self.diagnostics)

    @property
    def model(self) -> str:
        """How deadlock was judged, in words: ``without buffering``, ``LL: with 8 messages in flight per connection``.
        """
        return _model(self.sends)

    def proof(self, name: str) -> Proof:
        """The proof of a property. KeyError where there is none of that name."""
        found = next((p for p in self.proofs if p.name == name), None)
        if found is None:
            raise KeyError(name)
        return found


def verify(table: OpTable, *, sends: Sends = DEFAULT, require_agreement: bool = False, dtype: str | None = None,
           accumulate: str | None = None) -> Verdict:
    """Prove a table right, or say what is wrong with it.

    A proof is judged where those before it make it meaningful: values only in an order that exists and is settled.
    ``sends``: of a table that was written for a transport the default judges by what that does; a model that is a
    transport itself takes the place of that. With ``require_agreement`` ranks that may end with different bits are an
    error.
    ``dtype``: say, too, what sums and products do in this dtype, held in ``accumulate`` meanwhile; both are names (see
    :mod:`schedlang.running.dtypes`).
    Raises SchedError SL803 for names that cannot be used.
    """
    table, sends = resolve(table, sends)
    report = _Report(table, sends, _arithmetic(dtype, accumulate))
    if not report.judge("form", legal.check(table)):
        return report.verdict("the table is not well-formed")
    if not report.judge("form", room.check(table)):
        return report.verdict("there is not memory enough")
    matched = matching.match(table, sends)
    before_after = conditions(table)
    ill = steps(table, matched.lanes, before_after)
    settled = report.judge("steps", ill.diagnostics)
    if not report.judge("matching", matched.diagnostics):
        stuck = deadlock.check(table, matched, order(table, matched, sends))
        report.add("deadlock", stuck, "failed" if stuck else "not judged", "" if stuck else "transfers do not match")
        return report.verdict("transfers do not match")
    found = order(table, matched, sends)
    pieces = slots(table, matched)
    report.judge("deadlock", deadlock.check(table, matched, found, pieces), _model(sends))
    if not found.complete:
        return report.verdict("the schedule does not come to its end")
    settled &= report.judge("races", races.check(table, found), depth_words(sends.depth))
    report.facts |= _costs(table, matched, found, pieces)
    if table.collective.name == "barrier":
        report.judge("barrier", barrier.check(table, found), depth_words(sends.depth))
        if report.arithmetic is not None:
            report.facts["dtype"] = report.arithmetic.dtype.name        # and no more to say: it adds nothing
        return report.verdict("a barrier's tokens hold nothing")
    if not settled:
        return report.verdict("values depend on timing")
    moving = carriers(table, matched, found, before_after.locations, ill)
    alone = int(matched.lanes.per_rank(table.ranks).max()) < 2
    del matched, found, ill, pieces     # the walk needs their room
    _values(report, moving, before_after, alone, require_agreement)
    return report.verdict("")


PROOFS = ("form", "steps", "matching", "deadlock", "races", "initialisation", "postcondition", "agreement")
"""The properties a verdict speaks of, in order; for a barrier `barrier` stands in place of the last three."""


def _arithmetic(dtype: str | None, accumulate: str | None) -> Arithmetic | None:
    if dtype is None:
        if accumulate is not None:
            raise SchedError(error("SL803", f"accumulating in {accumulate} says something only beside a dtype",
                                   help="give the dtype of inputs and results, too"))
        return None
    from schedlang.verify.arithmetic import Arithmetic  # with ml_dtypes, which takes its time

    return Arithmetic.of(dtype, accumulate)


class _Report:
    """A verdict in the making."""

    def __init__(self, table: OpTable, sends: Sends, arithmetic: Arithmetic | None) -> None:
        self.table, self.sends, self.arithmetic = table, sends, arithmetic
        self.proofs: dict[str, Proof] = {}
        self.diagnostics: list[Diagnostic] = []
        self.facts: dict[str, Any] = {}

    def add(self, name: str, found: Iterable[Diagnostic], state: State, detail: str = "") -> None:
        self.diagnostics += found
        self.proofs[name] = Proof(name, state, detail)

    def judge(self, name: str, found: Sequence[Diagnostic], how: str = "") -> bool:
        """Enter a proof that was made: it failed when one of its findings is an error. Says whether it holds."""
        holds = all(d.severity < Severity.ERROR for d in found)
        self.add(name, found, "proved" if holds else "failed", how)
        return holds

    def verdict(self, why: str) -> Verdict:
        """The verdict; ``why`` the proofs not yet entered were not judged."""
        names = PROOFS if self.table.collective.name != "barrier" else (*PROOFS[:5], "barrier")
        proofs = tuple(self.proofs.get(name) or Proof(name, "not judged", why) for name in names)
        told = self.table.told(self.diagnostics) if self.table.told is not None else self.diagnostics
        return Verdict(self.table, self.sends, proofs, tuple(told), self.facts)


def _model(sends: Sends) -> str:
    """How deadlock is judged, in words."""
    words = depth_words(sends.deadlock_depth)
    return words if sends.transport is None else f"{sends.transport.name}: {words}"


def _costs(table: OpTable, matched: Matching, found: Order, pieces: Slots | None) -> dict[str, Any]:
    """The facts that need no values."""
    costs: dict[str, Any] = {"rounds": critical_path(table, matched, found)}
    limit = facts.bounds(table.collective.name, table.ranks)
    if limit.rounds is not None:
        costs["rounds_bound"] = limit.rounds
    least = deadlock.least_depth(table, matched, found)
    if table.transport is not None:
        costs |= {"transport": table.transport.name, "transport_depth": table.transport.depth}
    if pieces is not None:
        costs["least_depth_whole"] = least
        least = deadlock.least_depth(table, matched, found, pieces)
        if pieces.exhausted:
            costs["least_depth_exact"] = False
    return {**costs, **facts.traffic(table), "least_depth": least}


def _values(report: _Report, moving: Carriers, before_after: Conditions, alone: bool, require_agreement: bool) -> None:
    """The proofs about values: initialisation, postcondition, lengths, agreement; and what is useless. ``alone``: every
    rank has one stream."""
    table = report.table
    kind = COLLECTIVES[table.collective.name]
    unfit = ensured(table, before_after)
    if unfit:
        report.judge("postcondition", unfit)
        return
    program = Program.of(moving)
    report.facts["peak_scratch"] = facts.peak_scratch(table, moving, before_after)
    reduces = bool(moving.adds.any()) or moving.operand is not None
    held = judge(table, program, before_after, agree=kind.shared and reduces)
    report.facts["exact"] = held.doubt == 0
    if held.doubt:
        report.facts["doubt"] = float(f"{held.doubt:.1e}")
    report.judge("initialisation", held.uninitialised)
    how = "exactly"
    if held.doubt:
        how = f"by fingerprints; a wrong result would pass with a probability of at most {held.doubt:.1e}"
    ensures = table.collective.ensures
    if table.collective.name == "custom" and (ensures is None or not len(ensures.rank)):
        how = "nothing is promised of the results"
        report.facts["nothing_promised"] = True
    if held.uninitialised and not held.wrong:
        report.add("postcondition", (), "not judged", "results may come from memory that nothing has written")
    else:
        report.judge("postcondition", held.wrong, how)
    if held.uninitialised or held.wrong:
        report.add("agreement", (), "not judged", "the values are wrong")
        return
    report.diagnostics += shorter_parts(table, program, before_after)
    if table.collective.counts is not None:
        report.facts |= facts.traffic(table, elements(table, program, before_after, table.collective.counts))
    if not kind.shared:
        report.facts["agreement"] = None
        report.add("agreement", (), "not judged", "no result is held by every rank")
    else:
        _agreement(report, held.agreement.diagnostic if held.agreement is not None else None, require_agreement)
    if all(d.severity < Severity.ERROR for d in report.diagnostics):
        idle = useless(table, program, before_after, held.repeats, report.sends, alone=alone)
        report.diagnostics += remarks(table, program, idle) if idle is not None else ()
        if report.arithmetic is not None:
            from schedlang.verify.precision import Precision

            told = Precision(table, program, before_after, report.arithmetic)
            report.facts |= told.facts
            report.diagnostics += told.diagnostics


def _agreement(report: _Report, differs: Diagnostic | None, require_agreement: bool) -> None:
    """Whether all ranks get the same bits; ``differs`` says where not."""
    report.facts["agreement"] = differs is None
    if differs is None:
        report.judge("agreement", ())
    else:
        if require_agreement:
            differs = replace(differs, severity=Severity.ERROR)
        report.add("agreement", [differs], "failed")
