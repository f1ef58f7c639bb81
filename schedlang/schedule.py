"""A schedule as a Python object: load it, prove it, call it with arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedlang.diagnostics import SchedError, Severity, error
from schedlang.ir.table import Collective, OpTable
from schedlang.ops import COLLECTIVES, REDUCE_OPS

if TYPE_CHECKING:
    from schedlang.backend import Backend
    from schedlang.verify import Verdict


def load(path: str | Path, ranks: int | None = None, **params: Any) -> Schedule:
    """Read a schedule and expand it for one size.

    ``path``: a ``.sched`` file, ``FILE::NAME`` for one schedule of several, or an op table in JSON. ``ranks``: the
    world size; where the schedule computes it, values whose world has that size are taken from its `verify` line.
    ``params``: its other parameters: integers, booleans, names of things as strings, lists, matrices as nested lists
    or NumPy arrays.

    Raises SchedError: whatever is wrong with the text (SL1xx), its names and values (SL2xx).
    """
    file, _, name = str(path).partition("::")
    if Path(file).suffix.lower() == ".json":
        return Schedule(_from_json(file, name or None, ranks, params))
    from schedlang.expand import cases, expand, load_program

    program = load_program(file)
    chosen = program.main(name or None)
    if ranks is not None:
        wanted = cases(program, chosen, ranks=[ranks], params={key: [value] for key, value in params.items()})
        if not wanted:
            raise SchedError(error("SL206", f"no values of {chosen}'s `verify` line make a world of {ranks} ranks",
                                   help="give its parameters by name"))
        params = dict(wanted[0])
        ranks = params.pop("ranks", ranks)
    table, findings = expand(program, chosen, ranks=ranks, params=params)
    if table is None:
        raise SchedError(findings)
    return Schedule(table)


def _from_json(file: str, name: str | None, ranks: int | None, params: Mapping[str, Any]) -> OpTable:
    from schedlang.ir.json import loads
    from schedlang.syntax import read

    table = loads(read(file).text, file)
    if name not in (None, table.name):
        raise SchedError(error("SL212", f"{file} holds the schedule {table.name}, not {name}"))
    if params:
        raise SchedError(error("SL206", f"{file} is an op table, expanded already: it takes no {', '.join(params)}",
                               help="give parameters to a .sched file"))
    if ranks not in (None, table.ranks):
        raise SchedError(error("SL206", f"{file} is an op table for {table.ranks} ranks, not {ranks}"))
    return table


@dataclass(frozen=True, eq=False)
class Schedule:
    """A schedule, expanded for one size: a pure function from the arrays of all ranks to the arrays of all ranks."""

    table: OpTable

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def ranks(self) -> int:
        return self.table.ranks

    @property
    def params(self) -> Mapping[str, Any]:
        return self.table.params

    @property
    def collective(self) -> Collective:
        return self.table.collective

    def __repr__(self) -> str:
        given = "".join(f", {key}={value!r}" for key, value in self.params.items() if key != "ranks")
        return f"<schedule {self.name}: {self.collective.name} on {self.ranks} ranks{given}>"

    def with_op(self, op: str) -> Schedule:
        """The same schedule with another reduction operator, a key of ``ops.REDUCE_OPS``. Raises SchedError (SL806)."""
        self._require_op(op)
        return Schedule(self.table.with_columns(collective=replace(self.collective, op=op)))

    def _require_op(self, op: str) -> None:
        if op not in REDUCE_OPS:
            raise SchedError(error("SL806", f"there is no reduction operator {op}",
                                   help=f"choose one of: {', '.join(REDUCE_OPS)}"))
        if not COLLECTIVES[self.collective.name].reduces:
            raise SchedError(error(
                "SL806", f"{self.name} is a schedule for {self.collective.name}, which reduces nothing",
                                   help="leave the operator out"))

    def verify(self, **options: Any) -> Verdict:
        """Prove the schedule right, or find what is wrong with it: see :func:`schedlang.verify.verify`."""
        if not options:
            return self._verdict
        from schedlang.verify import verify

        return verify(self.table, **options)

    @cached_property
    def _verdict(self) -> Verdict:
        from schedlang.verify import verify

        return verify(self.table)

    def require_right(self) -> None:
        """Raises SchedError with the findings where the schedule is not proved right."""
        if not self.verify().ok:
            raise SchedError([d for d in self.verify().diagnostics if d.severity is Severity.ERROR])

    def __call__(self, inputs: Any = None, *, backend: str | Backend = "numpy", op: str | None = None,
                 accumulate: str | None = None, verify: bool = True,
                 progress: Callable[[float], None] | None = None) -> Any:
        """Execute the schedule on arrays: NumPy's, torch tensors, CuPy's, or others that offer DLPack.

        ``inputs``: a list with each rank's array, or one array of them all, stacked along axis 0; None where a rank
        brings nothing (all ranks but the root in broadcast and scatter). All arrays have one library, device, dtype
        and shape; none is changed. The results come in the same form: a list, with None where the collective leaves
        nothing at a rank, or one stacked array where each rank has a result; of the same library, device and dtype.
        Tensors that require a gradient are taken as their values; the results are not part of an autograd graph.

        Shapes: all-reduce, reduce and broadcast take any shape and keep it (elements in C order). The blocked
        collectives divide or join along the first dimension, as torch.distributed's ``*_tensor`` functions do.
        v-collectives take and give one dimension, sized by their counts. `custom` takes `input` (or `data`) in any
        shape and gives what its `ensure` statements name, in that shape if it has as many elements, else flat; a dict
        by buffer name where there are several. A barrier takes and gives None.

        ``op`` replaces the schedule's operator; ``accumulate="float32"`` holds float16 and bfloat16 in float32 until
        the end. ``verify``: prove the schedule right first (once). ``progress`` is called with the fraction done.

        Raises SchedError: the findings where the schedule is faulty, SL801..803 where arrays do not fit it (the
        message names the rank), SL804 for a back end that cannot be used.
        """
        from schedlang.backend import find
        from schedlang.calls import call

        if op is not None:
            self._require_op(op)
        runner = find(backend) if isinstance(backend, str) else backend
        if verify:
            self.require_right()            # of every operator alike: each contribution counts exactly once
        return call(self.table, inputs, runner, op=op, accumulate=accumulate, progress=progress)

    def run(self, inputs: Sequence[Any], **options: Any) -> Any:
        """The same as calling the schedule."""
        return self(inputs, **options)
