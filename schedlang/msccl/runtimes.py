"""The runtimes that read MSCCL XML, as data: their limits, what they demand, and what they do with a file that they do
not take.

Read from their sources; ``sources`` of each says where. A limit is the largest number that is read and works.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from schedlang.msccl.plan import Kind

# The reader of tags is one and the same in all three: that of NCCL's topology files.
STRING = 255
"""Characters of a name or value."""
ATTRIBUTES = 16
"""Attributes of a tag; those after them are not seen."""
NODES = 4095
"""Elements that a rank reads: the algorithm, every gpu, its own blocks and steps. The reader's table has 4,096 entries
(``MAX_NODES``), and one must be left when it meets the next tag."""
CHILDREN = 1024
"""Elements in an element (``MAX_SUBS``); nothing checks it."""
COUNT = 71
"""Chunks that a step moves (``MSCCL_MAX_COUNT`` is 72, and is too many)."""
OFFSET = 32767
"""Offsets are kept in 16 bits (``srcOffset``, ``dstOffset``)."""
DEPENDED = 127
"""The block that a step waits for is kept in 8 bits (``dependentBid``)."""
PEERS = 32
"""Blocks of a rank that send, or that receive, on a channel (``MSCCL_MAX_NUM_THREAD_BLOCKS_PER_CHANNEL``)."""
JOINED = 16
"""So many `re` of a block, and the chain of those that are joined ends (``MSCCL_MAX_REDUCE_FUSION``)."""

OPERATORS = ("sum", "prod", "min", "max")
"""What kernels exist for."""

DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint32", "uint64")
"""What NCCL has of our dtypes; there are no integers of 16 bits."""

FUSED = (Kind.RCS, Kind.RRC, Kind.RRS, Kind.RRCS)

MULTIPLIED = ("allgather", "reducescatter", "reduce_scatter", "alltoall")
"""Collectives whose size in a call is that of one rank's block: the runtime multiplies it by the number of ranks before
it compares and divides."""

PER_TAG: Mapping[str, tuple[str, ...]] = {
    "algo": ("name", "proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace", "outofplace", "minBytes",
             "maxBytes"),
    "gpu": ("id", "i_chunks", "o_chunks", "s_chunks"),
    "tb": ("id", "send", "recv", "chan"),
    "step": ("s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"),
}
"""The attributes that are read. All but some of an algorithm's must be there, also where they have no meaning, as the
places of a nop."""


@dataclass(frozen=True)
class Runtime:
    """What one runtime takes.

    ``name``: for ``--runtime``; ``title``: in messages; ``sources``: where it was read.

    ``steps`` of a block, ``blocks`` of a rank, ``channels`` there can be, ``files`` it keeps. ``idle``: a rank may have
    no block at all; else its kernel is started with a grid of none, which is an error.

    ``fused``: it runs rcs, rrc, rrs and rrcs. ``collectives``: the values of ``coll``. ``required``: the attributes an
    algorithm must have. ``chunks_agree``: i_chunks and o_chunks have to fit nchunksperloop. ``warp``: what nthreads
    must be a multiple of; None where it is not read.

    ``last``: maxBytes belongs to the range. ``endless``: a maxBytes of 0 is no limit. ``range``: minBytes and maxBytes
    where they are missing and need not be there.

    ``folder``: it reads all of a folder, sorted by name; else the files that it is given, in that order.
    ``both``: outofplace is read; else inplace says it alone.

    What it does: ``unreadable`` (where the beginning of a file cannot be read), ``refuses`` (at a fault elsewhere in
    it), ``crowded`` (more channels than there are); and without a subject ``wrong_world``, ``passes`` (a file that is
    not for this call).
    """

    name: str
    title: str
    sources: str
    steps: int
    blocks: int
    channels: int
    files: int
    idle: bool
    fused: bool
    collectives: tuple[str, ...]
    required: tuple[str, ...]
    chunks_agree: bool
    warp: int | None
    last: bool
    endless: bool
    range: tuple[int, int] | None
    folder: bool
    both: bool
    unreadable: str
    refuses: str
    wrong_world: str
    passes: str
    crowded: str


_ALWAYS = ("nchunksperloop", "nchannels", "ngpus", "proto", "coll", "inplace")
_LATER = ("reduce", "broadcast", "allreduce", "reducescatter", "allgather", "send", "recv", "gather", "scatter",
          "alltoall", "alltoallv")
_ENDS = "it gives an error while it reads the folder, and no file that comes after this one is used"
_FAILS = "the communicator cannot be made"
_SILENT = "passes the file over without a word"
_WARNS = "warns, and goes on without the file"
_IGNORES = f"it {_WARNS}"

RUNTIMES: Mapping[str, Runtime] = {r.name: r for r in (
    Runtime(
        "rccl", "RCCL",
        "ROCm/rccl of 2024-10: src/misc/msccl (msccl_parser.cc, msccl_lifecycle.cc, msccl_setup.cc), "
        "src/include/msccl/msccl_struct.h",
        steps=64, blocks=64, channels=128, files=1024, idle=False, fused=False, collectives=_LATER,
        required=(*_ALWAYS, "outofplace", "minBytes", "maxBytes"), chunks_agree=False, warp=None, last=True,
        endless=True, range=None, folder=True, both=True, unreadable=_ENDS, refuses=_FAILS, wrong_world=_SILENT,
        passes=_SILENT, crowded=_IGNORES),
    Runtime(
        "azure", "the Azure executor",
        "Azure/msccl-executor-nccl of 2024: src/misc/msccl (the same files), src/include/msccl/msccl_struct.h, "
        "src/include/device.h, makefiles/common.mk (MSCCL_MAX_NUM_STEPS, which a build may set)",
        steps=64, blocks=32 * 32, channels=32, files=1024, idle=False, fused=True, collectives=_LATER,
        required=(*_ALWAYS, "outofplace", "minBytes", "maxBytes"), chunks_agree=False, warp=None, last=True,
        endless=True, range=None, folder=True, both=True, unreadable=_ENDS, refuses=_FAILS, wrong_world=_SILENT,
        passes=_SILENT, crowded=_FAILS),
    Runtime(
        "microsoft", "microsoft/msccl",
        "microsoft/msccl: src/graph/topo.cc, src/graph/xml.h, src/include/msccl.h, src/collectives/all_to_all.cc",
        steps=256, blocks=216, channels=32, files=4, idle=True, fused=True,
        collectives=("allreduce", "allgather", "reduce", "broadcast", "alltoall", "reduce_scatter", "custom"),
        required=("name", *_ALWAYS), chunks_agree=True, warp=32, last=False, endless=False, range=(0, 1 << 27),
        folder=False, both=False, unreadable=_IGNORES, refuses=_IGNORES, wrong_world=_WARNS, passes=_SILENT,
        crowded="it warns, reads on, and uses channels that there are not"),
)}
"""All of them, by name."""
