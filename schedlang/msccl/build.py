"""Elements become a plan: attributes become numbers, ranks and blocks stand in the order of theirs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from schedlang.ir.table import NONE, Array
from schedlang.msccl.complaints import Complaints
from schedlang.msccl.parse import ALGO, MAY_BE, Elements
from schedlang.msccl.places import shown
from schedlang.msccl.plan import Kind, Plan
from schedlang.msccl.remarks import remarks
from schedlang.msccl.written import (
    ALGO_HELP,
    ALGO_RANGES,
    BLOCK_RANGES,
    COLLECTIVES,
    COPY_RANGES,
    GPU_RANGES,
    HELP,
    KINDS,
    LONGEST_NAME,
    OPERATORS,
    PROTOCOLS,
    SPACES,
    STEP_RANGES,
    choices,
    instead,
    meant_by,
    numbers,
    wrong_number,
)


def plan_of(e: Elements, complaints: Complaints) -> Plan:
    """The plan, of which ``rules`` has still to be asked. Raises SchedError (SL108) where something is missing or is no
    number in its range, and where ranks and blocks are not numbered as they should be."""
    number = _algo(e, complaints)
    gpu = numbers(e.gpus, e.gpu_at, GPU_RANGES, complaints)
    block = numbers(e.blocks, e.block_at, BLOCK_RANGES, complaints)
    step = numbers(e.steps, e.step_at, STEP_RANGES, complaints)
    copy = numbers(e.copies, e.copy_at, COPY_RANGES, complaints, {"cnt": 1})
    step["type"] = choices(e.steps, "type", KINDS, "a kind of step", e.step_at, complaints)
    for name in ("srcbuf", "dstbuf"):
        step[name] = choices(e.steps, name, SPACES, "a buffer", e.step_at, complaints)
    complaints.stop()

    ranks = _ranks(gpu["id"], number["ngpus"], e, complaints)
    gpu["at"] = e.gpu_at
    gpu = _taken(gpu, ranks)
    block["rank"], block["at"] = _inverse(ranks)[e.block_gpu], e.block_at
    blocks = _blocks(block, complaints)
    block = _taken(block, blocks)
    step["block"], step["at"] = _inverse(blocks)[e.step_block], e.step_at
    if (np.diff(step["block"]) < 0).any():
        step = _taken(step, np.argsort(step["block"], kind="stable"))
    copy["rank"], copy["at"] = _inverse(ranks)[e.copy_gpu], e.copy_at
    copy = _taken(copy, np.argsort(copy["rank"], kind="stable"))
    return Plan(
        source=complaints.source, name=_name(e, complaints), proto=e.algo["proto"], channels=number["nchannels"],
        chunks=number["nchunksperloop"], ranks=number["ngpus"], coll=e.algo["coll"], inplace=bool(number["inplace"]),
        outofplace=bool(number["outofplace"]) if "outofplace" in number else None, min_bytes=number.get("minBytes"),
        max_bytes=number.get("maxBytes"), redop=e.algo["redop"] if e.algo.get("redop") in OPERATORS else None,
        attributes=e.algo, at=e.algo_at,
        i_chunks=gpu["i_chunks"], o_chunks=gpu["o_chunks"], s_chunks=gpu["s_chunks"], gpu_at=gpu["at"],
        block_rank=block["rank"], block_id=block["id"], send=block["send"], recv=block["recv"],
        chan=np.maximum(block["chan"], 0), block_at=block["at"],
        block=step["block"], s=step["s"], kind=step["type"], src_space=step["srcbuf"], dst_space=step["dstbuf"],
        src_offset=step["srcoff"], dst_offset=step["dstoff"], count=np.where(step["type"] == Kind.NOP, 0, step["cnt"]),
        dep_block=step["depid"], dep_step=step["deps"], has_dep=step["hasdep"].astype(bool), step_at=step["at"],
        copy_rank=copy["rank"], copy_input=copy["i_off"], copy_output=copy["o_off"], copy_count=copy["cnt"],
        copy_at=copy["at"], remarks=remarks(e, complaints.source))


def _algo(e: Elements, complaints: Complaints) -> dict[str, int]:
    """The numbers among the attributes of the <algo>."""
    found: dict[str, int] = {}
    for name in (*ALGO, *MAY_BE):
        word = e.algo.get(name)
        if word is None:
            if name in ALGO and name != "name":
                strange = [other for other in e.algo if other not in (*ALGO, *MAY_BE)]
                complaints.add(f"{name} is missing", e.algo_at, help=meant_by(strange, name) or ALGO_HELP[name])
        elif name in ALGO_RANGES:
            if why := wrong_number(name, word, *ALGO_RANGES[name]):
                complaints.add(why, e.algo_at, name, help=ALGO_HELP[name])
            else:
                found[name] = int(word)
    for name, known, what in (("proto", PROTOCOLS, "a protocol"), ("coll", COLLECTIVES, "a collective")):
        word = e.algo.get(name)
        if word is not None and word not in known:
            complaints.add(f"{name}={shown(word)} is not {what}", e.algo_at, name, help=instead(word, known))
    name = _name(e, complaints)
    if len(name) > LONGEST_NAME or not name.isprintable():
        complaints.add(f"name={shown(name)} is not a name", e.algo_at, "name",
                       help=f"a name has at most {LONGEST_NAME} characters, all printable")
    return found


def _name(e: Elements, complaints: Complaints) -> str:
    """The name of the algorithm; that of the file, as far as it is one, where there is none: not all runtimes look for
    it."""
    if name := e.algo.get("name"):
        return name
    return "".join(c for c in Path(complaints.source.path).name.partition(".")[0] if c.isprintable()) or "algo"


def _taken(columns: dict[str, Array], rows: Array) -> dict[str, Array]:
    return {name: column[rows] for name, column in columns.items()}


def _inverse(order: Array) -> Array:
    """Of an order, where each entry comes to stand."""
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    return places


def _ranks(ids: Array, ranks: int, e: Elements, complaints: Complaints) -> Array:
    """The order of the ranks in the file. Each is there once."""
    order = np.argsort(ids, kind="stable")
    twice = order[1:][ids[order[1:]] == ids[order[:-1]]]
    complaints.each(twice, e.gpu_at, lambda i: f"rank {ids[i]} is there already", "id", help="each rank has one <gpu>")
    complaints.each(np.flatnonzero(ids >= ranks), e.gpu_at, lambda i: f'id="{ids[i]}", but ngpus="{ranks}"', "id",
                    help="ranks are numbered from 0, and ngpus is how many there are")
    if len(ids) < ranks and not complaints.found:
        lost = next((i for i, id in enumerate(ids[order].tolist()) if i != id), len(ids))
        complaints.add(f'ngpus="{ranks}", but there {_are(len(ids))} <gpu>, and none for rank {lost}', e.algo_at,
                       "ngpus", help="ngpus is the number of ranks, and each has one <gpu>")
    complaints.stop()
    return order


def _blocks(block: dict[str, Array], complaints: Complaints) -> Array:
    """The order of the blocks, by rank and id. Those of a rank are numbered without gaps."""
    order = np.lexsort((block["at"], block["id"], block["rank"]))
    rank, ids, at = block["rank"][order], block["id"][order], block["at"][order]
    same = rank[1:] == rank[:-1]
    twice = np.flatnonzero(same & (ids[1:] == ids[:-1])) + 1
    complaints.each(twice, at, lambda i: f"block {ids[i]} of rank {rank[i]} is there already", "id",
                    help="the blocks of a rank are numbered from 0, each differently")
    before = np.append(NONE, np.where(same, ids[:-1], NONE))[: len(ids)]
    gaps = np.flatnonzero(ids > before + 1)
    complaints.each(gaps, at, lambda i: f"rank {rank[i]} has a block {ids[i]}, but no block {before[i] + 1}", "id",
                    help="the blocks of a rank are numbered from 0 without gaps")
    chan = block["chan"]
    peers = (block["send"] != NONE) | (block["recv"] != NONE)
    complaints.each(np.flatnonzero((chan < 0) & peers), block["at"],
                    lambda i: f'chan="{chan[i]}" in a block with a peer', "chan", help=HELP["chan"])
    complaints.stop()
    return order


def _are(count: int) -> str:
    return f"are {count}" if count != 1 else "is one"
