"""Whether ``verify`` and the interpreter say the same of a table.

The interpreter judges by running. One complete run under a completion model decides races, and a run that stops
decides deadlock, because completion is confluent: every rule of docs/decisions/0001 says that something may happen
once certain other things have, never that something may not. So what is possible stays possible until it happens, all
runs do the same things, and what happens before what (the premises of the rules, closed transitively: vector clocks)
is the same in each. Two things could differ from run to run: which sends pair with which receives where several lanes
post at one end of a connection in no settled order (that is SL304, seen in any complete run: at the first such end
everything before it is still as in all other runs), and values where a race decides them (SL401). After either,
values are not compared.

On a transport, that a table was written for or that is asked for, deadlock is judged with the depth of that, each
message as one and cut into single chunks (``tests/pieces.py``). A fault of form or matching comes before cutting.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from schedlang.diagnostics import Severity
from schedlang.interpret import Outcome, interpret
from schedlang.ir.table import TRANSPORTS, OpTable
from schedlang.ops import COLLECTIVES
from schedlang.verify import Verdict, verify
from schedlang.verify.sends import Sends
from tests.pieces import in_pieces

MODELS = ("default", "rendezvous", "buffered=1", "buffered=2", "unlimited", "Simple")
"""Spellings of ``--sends`` that are compared."""

UNMATCHED = {"SL301", "SL302"}
VALUES = {"SL501", "SL502", "SL503", "SL504"}


@dataclass(frozen=True)
class Comparison:
    """``verdict``: what both say, in a word, or ``illegal``. ``disagreement``: where they differ, in a sentence."""

    verdict: str
    disagreement: str | None = None


def compare(table: OpTable, sends: str = "default", seed: int = 0) -> Comparison:
    """Run both on a table, the interpreter in several interleavings drawn by ``seed``."""
    verdict = verify(replace(table, told=None), sends=Sends.parse(sends))
    codes = {d.code for d in verdict.diagnostics if d.severity == Severity.ERROR}
    if verdict.proof("form").state == "failed":
        return Comparison("illegal", _events(table, codes))
    tight, loose = ("rendezvous", "unlimited") if sends == "default" else (sends, sends)
    if sends in TRANSPORTS:
        table = replace(table, transport=TRANSPORTS[sends])
    own = table.transport is not None and sends in ("default", *TRANSPORTS)
    if table.transport is not None and own:
        tight, loose = f"buffered={table.transport.depth}", "unlimited"
    stuck = interpret(table, "contributions", sends=tight, order="random", seed=seed)
    if own and stuck.finished and not stuck.mismatched:
        stuck = interpret(in_pieces(table), "contributions", sends=tight, order="random", seed=seed)
    run = interpret(table, "contributions", sends=loose, order="adversarial", seed=seed)
    word, wrong = _order(codes, stuck, run)
    if wrong is None and word == "":
        word, wrong = _values(codes, run)
    if wrong is None and word == "clean":
        if verdict.facts.get("agreement") != run.agreement:
            wrong = f"agreement is {run.agreement}, and {verdict.facts.get('agreement')} to verify"
        else:
            wrong = _clean(table, verdict, loose, seed)
    return Comparison(word, None if wrong is None else f"{wrong}; verify says {sorted(codes) or 'clean'} ({sends})")


def _events(table: OpTable, codes: set[str]) -> str | None:
    """Events, of a table that is legal but for them; the rest of the rules of form the interpreter relies on."""
    if not codes <= {"SL306", "SL307"}:
        return None
    run = interpret(table, "contributions")
    if bool(run.never_recorded) != ("SL306" in codes):
        return f"never recorded is what {run.never_recorded} wait for"
    twice = "SL307" in codes
    return None if bool(run.recorded_twice) == twice or (twice and not run.finished) else f"twice: {run.recorded_twice}"


def _order(codes: set[str], stuck: Outcome, run: Outcome) -> tuple[str, str | None]:
    """Everything before values. The word is empty where values are to be compared."""
    if bool(run.conflicts) != ("SL402" in codes):
        return "SL402", f"conflicting writes are {run.conflicts}"
    if run.unmatched:
        return "unmatched", None if codes & {*UNMATCHED, "SL304"} else f"rows {run.unmatched} have no partner"
    if codes & UNMATCHED:
        return "unmatched", "everything is matched"
    if run.ambiguous or stuck.ambiguous:
        settled = run.finished and stuck.finished and not run.mismatched
        expected = {"SL304"} if settled else {"SL303", "SL304", "SL305"}
        return "SL304", None if codes & expected else f"the order of {run.ambiguous or stuck.ambiguous} is not settled"
    if "SL304" in codes and run.finished:
        return "SL304", "every connection is settled"
    if run.mismatched and "SL303" not in codes:
        return "SL303", f"sizes of {run.mismatched} differ"
    if "SL303" in codes:  # of a pair that a stuck run never posts, the interpreter cannot know
        return "SL303", None if run.mismatched or not run.finished else "all sizes are equal"
    if stuck.finished == ("SL305" in codes):
        return "SL305", f"the run {'finishes' if stuck.finished else f'is stuck: {stuck.blocked}'}"
    if not stuck.finished:
        return "SL305", None
    if not run.finished:
        return "SL305", f"a run finishes with fewer buffers and is stuck with more: {run.blocked}"
    if bool(run.unordered) != ("SL308" in codes):
        return "SL308", f"not ordered are {run.unordered}"
    if bool(run.races) != ("SL401" in codes):
        return "SL401", f"races are {run.races}"
    if run.races or run.conflicts:
        return "SL401" if run.races else "SL402", None
    return ("SL308", None) if run.unordered else ("", None)


def _values(codes: set[str], run: Outcome) -> tuple[str, str | None]:
    if bool(run.uninitialised) != ("SL403" in codes):
        return "SL403", f"uninitialised reads are {run.uninitialised}"
    if run.uninitialised:
        return "SL403", None
    if bool(run.wrong) != bool(codes & VALUES):
        return "SL5xx", f"wrong are {run.wrong}"
    if not run.wrong:
        return "clean", None if not codes else "nothing is wrong"
    possible = [_faults(w.expected, w.holds) for w in run.wrong]
    if not codes & VALUES <= set().union(*possible):  # one finding may stand for all that one operation spoilt
        return "SL5xx", f"the results are wrong in another way: {run.wrong}"
    return "SL5xx", None


def _faults(expected: object, holds: object) -> set[str]:
    """Which findings a wrong location can be."""
    if holds is None:
        return {"SL504"}
    assert isinstance(expected, dict) and isinstance(holds, dict)
    found = set()
    if any(holds.get(c, 0) < n for c, n in expected.items()):
        found.add("SL501")
    if any(holds.get(c, 0) > n for c, n in expected.items()):
        found.add("SL502")
    if set(holds) - set(expected):
        found.add("SL503")
    return found


def _clean(table: OpTable, verdict: Verdict, sends: str, seed: int) -> str | None:
    """What a clean verdict promises: right numbers, one result in all interleavings, agreement, the depth it names."""
    warned = any(d.code == "SL602" for d in verdict.diagnostics)
    if not warned or table.collective.counts is None:
        numbers = interpret(table, seed, sends=sends, order="random", seed=seed)
        if not numbers.clean:
            return f"by numbers it is not clean: {numbers}"
    if not warned:
        size = seed % 17 * (table.ranks if COLLECTIVES[table.collective.name].family == "blocked" else 1)
        numbers = interpret(table, seed, sends=sends, elements=size, clocks=False)
        if not numbers.clean:
            return f"with {size} elements it is not clean: {numbers}"
    first = interpret(table, seed, sends=sends, dtype="float32", clocks=False)
    for order in ("random", "adversarial"):
        again = interpret(table, seed, sends=sends, dtype="float32", order=order, seed=seed, clocks=False)
        if not _same_bits(first, again):
            return f"{order} {seed} gives other bits than in-order"
    if verdict.facts.get("agreement") and COLLECTIVES[table.collective.name].shared:
        held = [o[name].tobytes() for o in first.outputs for name in o]
        if len(set(held)) > 1:
            return "ranks hold different bits in spite of agreement"
    whole = verdict.facts.get("least_depth_whole", verdict.facts["least_depth"])
    return _depth(table, whole) or _depth(in_pieces(table) if table.transport else table, verdict.facts["least_depth"])


def _depth(table: OpTable, depth: int) -> str | None:
    """The least depth that a clean verdict names suffices, and no less does."""
    if not interpret(table, 0, sends=_buffered(depth), clocks=False).finished:
        return f"with depth {depth} it is stuck"
    if depth > 0 and interpret(table, 0, sends=_buffered(depth - 1), clocks=False).finished:
        return f"it finishes with less depth than {depth}"
    return None


def _buffered(depth: int) -> str:
    return f"buffered={depth}" if depth else "rendezvous"


def _same_bits(a: Outcome, b: Outcome) -> bool:
    return all(x.keys() == y.keys() and all(np.array_equal(x[k].view(np.uint32), y[k].view(np.uint32)) for k in x)
               for x, y in zip(a.outputs, b.outputs, strict=True))
