"""A schedule as a Python object: load it, prove it, call it with arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedlang.diagnostics import Diagnostic, SchedError, Severity
from schedlang.ir.table import Collective, OpTable

if TYPE_CHECKING:
    from schedlang.backend import Backend
    from schedlang.diff import Difference
    from schedlang.verify import Verdict
    from schedlang.verify.sends import Sends


def load(path: str | Path, ranks: int | None = None, **params: Any) -> Schedule:
    """Read a schedule and expand it for one size.

    ``path``: a ``.sched`` file, ``FILE::NAME`` for one schedule of several, an op table in JSON, or MSCCL XML
    (``.xml``, ``.xml.gz``). ``ranks``: the world size, needed unless the schedule computes it or has a default for it.
    ``params``: its other parameters: integers, booleans, names of things as strings, lists, matrices as nested lists
    or NumPy arrays. Of an MSCCL file ``inplace`` says which of its two uses is meant: in place, where it is for that.

    A parameter that is not given has its default. One without a default has its value in the first case of the
    `verify` line that has ``ranks`` ranks and that no `require` excludes; :attr:`Schedule.params` tells which.

    Raises SchedError: whatever is wrong with the text (SL1xx), its names and values (SL2xx).
    """
    from schedlang.loading import load_table
    from schedlang.ready import one_integer

    if ranks is not None:
        ranks = one_integer("ranks", ranks, "load the schedule once for each number of ranks")
    return Schedule(load_table(str(path), ranks=ranks, params=params)[0])


def _with_a_way(finding: Diagnostic) -> Diagnostic:
    """A reason not to run; of a deadlock that buffering would prevent, with how to run it all the same."""
    depth = finding.witness.get("least_depth")
    if finding.code != "SL305" or not depth:
        return finding
    way = (f"where connections buffer {depth} message{'s' * (depth != 1)}, --sends buffered={depth}, in Python "
           f"sends=\"buffered={depth}\", lets it run; --no-verify, in Python verify=False, runs it unproved")
    return replace(finding, help=f"{finding.help}; {way}" if finding.help else way)


@dataclass(frozen=True, eq=False)
class Schedule:
    """A schedule, expanded for one size: a pure function from the arrays of all ranks to the arrays of all ranks."""

    table: OpTable

    @property
    def name(self) -> str:
        """The name it has in its file."""
        return self.table.name

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.table.ranks

    @property
    def params(self) -> Mapping[str, Any]:
        """The values of its parameters, `ranks` left out."""
        return self.table.params

    @property
    def collective(self) -> Collective:
        """What it implements."""
        return self.table.collective

    def __repr__(self) -> str:
        given = "".join(f", {key}={value!r}" for key, value in self.params.items() if key != "ranks")
        return f"<schedule {self.name}: {self.collective.name} on {self.ranks} ranks{given}>"

    def with_op(self, op: str) -> Schedule:
        """The same schedule with another reduction operator, a key of ``ops.REDUCE_OPS``. Raises SchedError (SL806)."""
        from schedlang.loading import with_op

        return Schedule(with_op(self.table, op))

    def verify(self, *, sends: Sends | str = "default", require_agreement: bool = False, dtype: str | None = None,
               accumulate: str | None = None) -> Verdict:
        """Prove the schedule right, or find what is wrong with it: see :func:`schedlang.verify.verify`.

        ``sends``: the model of completion, also as ``--sends`` spells it: ``rendezvous``, ``buffered=N``,
        ``unlimited``, or all that a protocol of MSCCL does: ``LL``, ``LL128``, ``Simple``. ``require_agreement``:
        ranks that may end with different bits are an error. ``dtype``: say, too, what sums and products do in this
        dtype, held in ``accumulate`` meanwhile.

        What is wrong with the schedule is in the verdict. Raises SchedError for what cannot be used: SL806 for other
        text, SL803 for ``dtype`` or ``accumulate``.
        """
        from schedlang.verify import verify
        from schedlang.verify.sends import Sends

        model = sends if isinstance(sends, Sends) else Sends.parse(sends)
        if require_agreement or dtype is not None or accumulate is not None:
            return verify(self.table, sends=model, require_agreement=require_agreement, dtype=dtype,
                          accumulate=accumulate)
        if model not in self._verdicts:
            self._verdicts[model] = verify(self.table, sends=model)
        return self._verdicts[model]

    def diff(self, other: Schedule) -> Difference:
        """What this schedule and another have in common: the same operations, the same bits, the same results, or not
        even these; and what each costs: see :func:`schedlang.diff.diff`.

        Neither has to be right. Raises SchedError (SL208) where the buffers divide into different numbers of chunks
        that have too many parts in common to follow."""
        from schedlang.diff import diff

        return diff(self.table, other.table)

    @cached_property
    def _verdicts(self) -> dict[Sends, Verdict]:
        return {}

    def require_right(self, *, sends: Sends | str = "default") -> None:
        """Raises SchedError with the findings where the schedule is not proved right; ``sends`` as for
        :meth:`verify`."""
        verdict = self.verify(sends=sends)
        if not verdict.ok:
            raise SchedError([_with_a_way(d) for d in verdict.diagnostics if d.severity is Severity.ERROR])

    def __call__(self, inputs: Any = None, *, backend: str | Backend = "numpy", op: str | None = None,
                 accumulate: str | None = None, verify: bool = True, sends: Sends | str = "default",
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
        the end. ``verify``: prove the schedule right first (once), for connections that hold what ``sends`` says (see
        :meth:`verify`). ``progress`` is called with the fraction done.

        Raises SchedError: the findings where the schedule is faulty, SL801..803 where arrays do not fit it (the
        message names the rank), SL804 for a back end that cannot be used.
        """
        from schedlang.backend import find
        from schedlang.running.calls import call

        if op is not None:
            self.with_op(op)
        runner = find(backend)
        if verify:
            self.require_right(sends=sends)            # of every operator alike: each contribution counts exactly once
        return call(self.table, inputs, runner, op=op, accumulate=accumulate, progress=progress)
