"""An MSCCL file as data: columns of its blocks and steps as they are written, before anything is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from schedlang.diagnostics import Diagnostic
from schedlang.ir.table import Array
from schedlang.msccl.places import tag_span
from schedlang.source import Source, Span


class Kind(IntEnum):
    """What a step does; ``.name.lower()`` is its spelling. ⊕ is the operator, msg what arrives, loc own memory."""

    S = 0
    """send src"""
    R = 1
    """dst = msg"""
    CPY = 2
    """dst = src"""
    RE = 3
    """dst = dst ⊕ src"""
    RCS = 4
    """dst = msg, send msg"""
    RRC = 5
    """dst = msg ⊕ loc[src]"""
    RRS = 6
    """send msg ⊕ loc[src], store nothing"""
    RRCS = 7
    """dst = msg ⊕ loc[src], send that"""
    NOP = 8
    """nothing; it carries a dependency"""


class Space(IntEnum):
    """Which buffer a step names: ``i``, ``o`` or ``s``."""

    INPUT = 0
    OUTPUT = 1
    SCRATCH = 2


@dataclass(frozen=True, eq=False)
class Plan:
    """An MSCCL algorithm, legal as a file: numbers are in range, ids without gaps, steps of known kinds.

    Of the algorithm: ``name`` (of the file where it has none); ``proto`` as written (``Simple``, ``LL``, ``LL128``);
    ``channels`` (nchannels); ``chunks`` (nchunksperloop); ``ranks`` (ngpus); ``coll`` as written; ``inplace``,
    ``outofplace`` (None where the attribute is missing); ``min_bytes``, ``max_bytes`` (None where missing); ``redop``
    (None where missing, or no operator of MSCCL's); ``attributes``: all of the element's, as written; ``at``: the
    offset of its tag in ``source.text``, as is every ``*_at`` below.

    One entry a rank, in the order of ids (int32): ``i_chunks``, ``o_chunks``, ``s_chunks``, ``gpu_at`` (int64).

    One entry a thread block, by rank, then id (int32): ``block_rank``, ``block_id``, ``send``, ``recv`` (NONE: no such
    peer), ``chan`` (at least 0; of a block without peers 0 where the oldest dialect has -1), ``block_at`` (int64).

    One entry a step, by block, then number: ``block`` (int32, index into the blocks' columns), ``s`` (int32, its number
    in the block), ``kind`` (int8, :class:`Kind`), ``src_space``, ``dst_space`` (int8, :class:`Space`), ``src_offset``,
    ``dst_offset``, ``count`` (int32, in chunks; of a nop 0), ``dep_block`` (int32, the id of a block of the same rank,
    NONE for none), ``dep_step`` (int32, NONE for none), ``has_dep`` (bool: the step publishes that it is done),
    ``step_at`` (int64).

    Fields that a kind ignores (dst of `s`, src of `r`, all places of `nop`) are as they are written.

    The oldest dialect's copies from input to output that come before everything else, one entry each (int32):
    ``copy_rank``, ``copy_input``, ``copy_output``, ``copy_count``, ``copy_at`` (int64).

    ``remarks``: notes on what was not understood and left out.
    """

    source: Source
    name: str
    proto: str
    channels: int
    chunks: int
    ranks: int
    coll: str
    inplace: bool
    outofplace: bool | None
    min_bytes: int | None
    max_bytes: int | None
    redop: str | None
    attributes: Mapping[str, str]
    at: int

    i_chunks: Array
    o_chunks: Array
    s_chunks: Array
    gpu_at: Array

    block_rank: Array
    block_id: Array
    send: Array
    recv: Array
    chan: Array
    block_at: Array

    block: Array
    s: Array
    kind: Array
    src_space: Array
    dst_space: Array
    src_offset: Array
    dst_offset: Array
    count: Array
    dep_block: Array
    dep_step: Array
    has_dep: Array
    step_at: Array

    copy_rank: Array
    copy_input: Array
    copy_output: Array
    copy_count: Array
    copy_at: Array

    remarks: tuple[Diagnostic, ...] = ()

    def span(self, at: int) -> Span:
        """The tag that begins at an offset, as a place for messages."""
        return tag_span(self.source, at)
