"""Tables as loop nests, for code generators: what each lane runs, with its loops and formulas found again.

:func:`lanes` gathers all lanes that run alike into one :class:`Program` with the rank as a parameter; :func:`unroll`
is its exact inverse. Every formula was checked on every row it stands for; nothing is taken from the source on trust.
"""

from schedlang.ir.loops.formulas import Affine, Formula, Lookup, Modular
from schedlang.ir.loops.nests import Lanes, Loop, Program, Statement, Step
from schedlang.ir.loops.recover import lanes
from schedlang.ir.loops.unroll import unroll

__all__ = ["Affine", "Formula", "Lanes", "Lookup", "Loop", "Modular", "Program", "Statement", "Step", "lanes", "unroll"]
