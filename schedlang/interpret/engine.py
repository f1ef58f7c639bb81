"""The interpreter as a back end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from schedlang.diagnostics import Note, SchedError, error
from schedlang.interpret import findings
from schedlang.interpret.machine import Machine, Model
from schedlang.interpret.order import InOrder
from schedlang.interpret.payload import Numbers
from schedlang.interpret.program import load
from schedlang.ir.origin import at_row
from schedlang.ir.table import Array, OpTable


class Backend:
    """The interpreter as a back end: slow, and the meaning itself."""

    name = "interpret"

    def available(self) -> str | None:
        return None

    def run(self, table: OpTable, inputs: Sequence[Mapping[str, Array]], *, op: str | None,
            accumulate: str | None = None, progress: Callable[[float], None] | None = None) -> list[dict[str, Array]]:
        """See :meth:`schedlang.backend.Backend.run`. Raises SchedError, also where the run cannot finish (SL305),
        reads what is not initialised (SL403) or moves a value to a shorter part (SL802)."""
        payload = Numbers(table, inputs, op, accumulate)
        program = load(table)
        machine = Machine(program, Model(None), InOrder(), payload.memory, payload.combine, payload.capacity, False)
        machine.run(progress)
        stuck = findings.blocked(table, program, machine.model)
        if stuck:
            notes = [Note(f"rank {table.rank[b.row]}, {b.reason}", table.origin(b.row)[0]) for b in stuck]
            raise SchedError(at_row(
                error("SL305", f"the schedule cannot finish: {len(stuck)} operations wait for ever", notes=notes,
                      help="`schedlang verify` shows the circle they stand in"), table, *(b.row for b in stuck)))
        for code, found, what in (("SL403", machine.uninitialised, "is read before anything is written there"),
                                  ("SL802", machine.misfits, "does not have the length of the value that comes there")):
            if found:
                row, (rank, buffer, chunk) = next(iter(found))
                at = f"chunk {chunk} of {table.buffers[buffer].name} on rank {rank}"
                raise SchedError(at_row(error(code, f"{at} {what}"), table, row))
        if progress is not None:
            progress(1.0)
        return payload.judge(machine.memory)[0]


backend = Backend()
