"""What a back end offers, and how one is found.

A back end executes an op table on the arrays of all ranks. Other people's come in by the entry points of group
``schedlang.backends``, each naming a :class:`Backend`. Ours are in the table below, so that they are found in a bare
clone, too, where no metadata is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import Array, OpTable

if TYPE_CHECKING:
    from schedlang.running.binding import Bound

GROUP = "schedlang.backends"
SHIPPED = {"numpy": "schedlang.backends.numpy:backend", "interpret": "schedlang.interpret:backend",
           "torch": "schedlang.backends.torch:backend", "native": "schedlang.backends.native:backend",
           "cupy": "schedlang.backends.cupy:backend"}

Progress = Callable[[float], None]
"""Called now and then with the fraction of the work that is done, 0 to 1."""


@runtime_checkable
class Backend(Protocol):
    """Executes op tables.

    ``name``: what one writes after ``--backend``. One that also has ``on_gpus``, and it is true, is given arrays that
    are on GPUs as they are (:class:`schedlang.running.arrays.OnGpu`), and then returns such.
    """

    name: str

    def available(self) -> str | None:
        """None where the back end can run, else what is missing, in a few words."""

    def run(self, table: OpTable, inputs: Sequence[Mapping[str, Array]], *, op: str | None,
            accumulate: str | None = None, progress: Progress | None = None) -> list[dict[str, Array]]:
        """Execute ``table`` once.

        ``inputs[r]``: for rank r, the contents of each buffer that the precondition initialises there, as a
        one-dimensional array of elements in chunk order, nothing else (so a broadcast's other ranks have an empty
        mapping, and an in-place all-gather's ``data`` is the rank's own block). All arrays have one dtype. They are
        only read.

        Returns, per rank, the contents of what the postcondition names, in the same form (an in-place
        reduce-scatter's ``data`` is the own block, a reduce leaves an empty mapping at other ranks; of a `custom`
        collective, the whole of every buffer that an ``ensure`` names on that rank). The arrays share no memory with
        the inputs.

        ``op``: the reduction operator, a key of ``ops.REDUCE_OPS``. ``accumulate``: the dtype in which values are
        held and combined from start to end (then rounded once to the inputs' dtype); None: the inputs' own, every
        operation rounding to it.

        Raises SchedError (SL801..803) where the arrays do not fit the table.
        """


@dataclass(frozen=True)
class Place:
    """A process's place among those that are a world: its rank, the number of ranks, and the same among those on its
    machine."""

    rank: int
    size: int
    local: int
    local_size: int


class OnOneRank(SchedError):
    """What one rank of a world raises for a reason of its own, which others do not know."""


@runtime_checkable
class Adjustable(Backend, Protocol):
    """A back end with choices of its own. ``choices``: their names, some of ``devices`` (GPUs by number), ``mode`` (a
    word: how a schedule is executed), ``blocks`` of each lane, ``slice`` (the bytes of a chunk that a lane passes on at
    a time) and ``timeout`` (seconds that a run may take)."""

    @property
    def choices(self) -> tuple[str, ...]: ...

    def chosen(self, **choices: Any) -> Backend:
        """This back end with other choices; what is not given stays. Raises SchedError (SL806) for values that are
        none."""


@runtime_checkable
class Timed(Backend, Protocol):
    """A back end that can tell how long a schedule takes without what comes before and after."""

    def timed(self, table: OpTable, inputs: Sequence[Mapping[str, Array]], bound: Bound, *, op: str | None,
              accumulate: str | None = None, repeat: int = 1,
              progress: Progress | None = None) -> tuple[list[float], list[dict[str, Array]]]:
        """As :meth:`run`, ``repeat`` times: the seconds that each execution took, bringing arrays to where they are
        needed left out, and the results of the last. ``bound``: the inputs, bound to the table already.

        Raises as :meth:`run`."""


@runtime_checkable
class Distributed(Timed, Protocol):
    """A back end whose ranks are processes of their own: those that it starts, or those of a world that it finds."""

    def on(self, *, device: str | None = None, timeout: float | None = None, everywhere: bool = True) -> Distributed:
        """This back end with other choices. ``device``: ``cpu`` or ``cuda``; None: GPUs where each rank has one.
        ``timeout``: seconds that a rank waits for another. ``everywhere``: in a world that it finds, every process gets
        the results of all ranks; else only rank 0, and the others their own alone."""

    def place(self) -> Place | None:
        """This process's place in a world that it finds; None where there is none, and it starts the ranks itself."""

    def timed(self, table: OpTable, inputs: Sequence[Mapping[str, Array]], bound: Bound, *, op: str | None,
              accumulate: str | None = None, repeat: int = 1,
              progress: Progress | None = None) -> tuple[list[float], list[dict[str, Array]]]:
        """As :meth:`run`, ``repeat`` times: the seconds that each execution took on the rank that took longest,
        starting the ranks and bringing them their inputs left out, and the results of the last. ``bound``: the inputs,
        bound to the table already; of a world that it finds only the own rank's are looked at.

        Raises as :meth:`run`, and OnOneRank."""


def names() -> list[str]:
    """The names of all back ends that can be asked for, whether or not they can run here."""
    return sorted({*SHIPPED, *(point.name for point in entry_points(group=GROUP))})


def find(wanted: str | Backend) -> Backend:
    """The back end of a name, or one that somebody hands over, ready to run.

    Raises SchedError (SL804) where there is none of that name, it cannot be loaded, it is none, or it cannot run here.
    """
    backend = _load(wanted) if isinstance(wanted, str) else wanted
    if not isinstance(backend, Backend) or isinstance(backend, type):
        raise SchedError(error("SL804", f"{wanted!r} is no back end: it lacks name, available() or run()",
                               help=f"{_choices()}, or give an object like those"))
    missing = backend.available()
    if missing is not None:
        raise SchedError(error("SL804", f"the back end {backend.name} cannot run here: {missing}",
                               help=_choices(backend.name)))
    return backend


def _load(name: str) -> Backend:
    # Ours first: to read the metadata of all that is installed takes longer than a small run.
    where = SHIPPED.get(name) or next((p.value for p in entry_points(group=GROUP) if p.name == name), None)
    if where is None:
        raise SchedError(error("SL804", f"there is no back end called {name}", help=_choices()))
    module, _, attribute = where.partition(":")
    try:
        found: Any = import_module(module)
        for part in filter(None, attribute.split(".")):
            found = getattr(found, part)
    except (ImportError, AttributeError) as cause:
        raise SchedError(error("SL804", f"the back end {name} ({where}) cannot be loaded: {cause}",
                               help=_choices(name))) from cause
    if not isinstance(found, Backend):
        raise SchedError(error("SL804", f"{where} is no back end: it lacks name, available() or run()",
                               help=_choices(name)))
    return found


def _choices(without: str | None = None) -> str:
    others = [n for n in names() if n != without]
    return f"choose one of: {', '.join(others)}" if others else "install one"
