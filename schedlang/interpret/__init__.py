"""The reference interpreter: what a schedule means, executable.

It is written to be read, and shares no code with ``verify``: each is the other's test. A run executes one
interleaving of one expanded schedule on real values, or on *contributions*, where a value is how often it contains
each initial value. On the way it keeps vector clocks, so one complete run also tells races: completion rules are
conjunctions, so what happens before what is the same in all runs that pair the same sends and receives.

In the order of reading: ``conditions`` (what must hold before and after), ``sizes``, ``values`` (the arithmetic),
``program`` (lanes, steps, operations, messages), ``machine`` (what can happen, and what happens then), ``order``
(interleavings), ``findings``, ``outcome``, ``payload`` (what runs are made on), ``engine`` (the back end).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.interpret import findings
from schedlang.interpret.conditions import Location
from schedlang.interpret.engine import Backend, backend
from schedlang.interpret.machine import Machine, Model
from schedlang.interpret.order import Adversarial, InOrder, Order, Random
from schedlang.interpret.outcome import Blocked, Outcome, Race, Wrong
from schedlang.interpret.payload import Numbers, Payload, Symbols
from schedlang.interpret.program import load
from schedlang.interpret.sizes import always_empty
from schedlang.ir.table import Array, OpTable

__all__ = ["Backend", "Blocked", "Location", "Outcome", "Race", "Wrong", "backend", "interpret"]


def interpret(table: OpTable, inputs: Sequence[Mapping[str, Array] | None] | int | Literal["contributions"] = 0, *,
              sends: str = "unlimited", order: str = "in-order", seed: int = 0, op: str | None = None,
              dtype: str = "int64", elements: int | None = None, accumulate: str | None = None,
              clocks: bool = True) -> Outcome:
    """Run a legal table once.

    ``inputs``: per rank, what the precondition initialises there (see :meth:`schedlang.backend.Backend.run`); or a
    seed, for random values of ``dtype``, ``elements`` of them (in the sense of :class:`~.sizes.Sizes`; None: one a
    chunk); or ``"contributions"``, to count how often each result contains each initial value, whatever the operator.
    ``sends``: the completion model, ``rendezvous``, ``buffered=N`` with N >= 1, or ``unlimited``. ``order``: the
    interleaving, ``in-order``, ``random`` or ``adversarial`` (delays a lane, reads, writes or completions as long as
    anything else can happen), the latter two chosen by ``seed``. ``op`` and ``accumulate``: as for a back end.
    ``clocks=False`` leaves out races, ambiguity and barriers, for speed. Results by numbers are judged where the
    dtype is no float; of floats the caller judges ``outputs``.

    Raises SchedError: SL801..803 for inputs that do not fit, SL806 for an unknown model or order.
    """
    model = _model(sends)
    payload: Payload
    if inputs == "contributions":
        payload = Symbols(table)
    elif isinstance(inputs, (int, np.integer)):
        payload = Numbers.random(table, int(inputs), op, dtype, elements, accumulate)
    else:
        payload = Numbers(table, inputs, op, accumulate)
    program = load(table)
    machine = Machine(program, model, _order(order, seed), payload.memory, payload.combine, payload.capacity, clocks)
    machine.run()
    finished = all(lane.at == len(lane.steps) for lane in program.lanes)
    outputs, wrong = payload.judge(machine.memory)
    facts: dict[str, Any] = {}
    if isinstance(payload, Symbols) and finished:
        facts["agreement"] = payload.agreement(machine.memory)
    empty = always_empty(table)
    if clocks:
        facts["ambiguous"] = findings.ambiguous(program)
        facts["races"] = findings.races(program, empty, table.transport is not None, model)
        if finished and table.collective.name == "barrier":
            facts["unordered"] = findings.unordered_ends(table, program)
    return Outcome(
        sends=sends, finished=finished, outputs=outputs, blocked=findings.blocked(table, program, model),
        unmatched=findings.unmatched(program), mismatched=findings.mismatched(table, program),
        misfits=tuple(machine.misfits), uninitialised=tuple(machine.uninitialised),
        conflicts=findings.conflicts(program, empty),
        recorded_twice=tuple(machine.recorded_twice), never_recorded=findings.never_recorded(program),
        wrong=wrong if finished else (), memory=machine.memory, **facts)


def _model(sends: str) -> Model:
    if sends == "rendezvous":
        return Model(0)
    if sends == "unlimited":
        return Model(None)
    depth = sends.removeprefix("buffered=")
    if depth != sends and depth.isdecimal() and int(depth) >= 1:
        return Model(int(depth))
    raise SchedError(error("SL806", f"{sends!r} is no completion model",
                           help="use rendezvous, buffered=N with N >= 1, or unlimited"))


def _order(order: str, seed: int) -> Order:
    if order == "in-order":
        return InOrder()
    if order == "random":
        return Random(seed)
    if order == "adversarial":
        return Adversarial(seed)
    raise SchedError(error("SL806", f"{order!r} is no interleaving", help="use in-order, random or adversarial"))
