"""The words of the language by where they are words of the language, as the parse tables tell.

Some are reserved everywhere; ``soft`` ones are names wherever a name can stand (grammars/sched.lark), so whoever
colours them has to know the places where they are none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from schedlang.syntax import tables


@dataclass(frozen=True, slots=True)
class Words:
    """Every word of the grammar is in one of the first four.

    ``reserved``: never a name, but for those that may also label things (rule ``keyword``).
    ``starting``: soft, and words of the language at the start of a statement.
    ``placing``: soft, and words of the language where nothing else can stand.
    ``trailing``: the other soft ones: words of the language after an operand.
    ``labelling``: reserved, but names of steps, streams, events and schedules where one stands.
    ``marks``: what is not made of letters.
    """

    reserved: frozenset[str]
    starting: frozenset[str]
    placing: frozenset[str]
    trailing: frozenset[str]
    labelling: frozenset[str]
    marks: frozenset[str]

    @property
    def soft(self) -> frozenset[str]:
        return self.starting | self.placing | self.trailing


@cache
def words() -> Words:
    table = tables.load()
    spelling = {n: t.pattern for n, t in enumerate(table.terminals) if t.kind == "word"}
    soft: set[int] = set()
    starting: set[int] = set()
    placing: set[int] = set()
    labelling: set[int] = set()
    for actions in table.actions:
        shifts = {kind: action - 1 for kind, action in actions.items() if action > 0}
        here = {kind for kind, state in shifts.items() if kind in spelling and _becomes(table, state, "soft")}
        soft |= here
        labelling |= {kind for kind, state in shifts.items() if _becomes(table, state, "keyword")}
        if table.literals["let"] in shifts:     # a statement starts here; so do names nowhere
            starting |= shifts.keys() & spelling.keys()
    for actions in table.actions:
        if actions and all(kind in soft and action > 0 for kind, action in actions.items()):
            placing |= actions.keys()
    starting &= soft

    def spelt(group: set[int]) -> frozenset[str]:
        return frozenset(spelling[n] for n in group)

    return Words(
        spelt(spelling.keys() - soft), spelt(starting), spelt(placing), spelt(soft - starting - placing),
        spelt(labelling),
        frozenset(t.pattern for t in table.terminals if t.kind == "mark"))


def _becomes(table: tables.Tables, state: int, rule: str) -> bool:
    """Whether the word that was shifted to get to this state can be made a ``rule`` by itself."""
    return any(table.nonterminals[made.origin] == rule and made.length == 1
               for action in table.actions[state].values() if action < 0
               for made in [table.rules[-1 - action]])
