"""What may be written in the attributes of an MSCCL file, and what to say where something else is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from schedlang.ir.table import NONE, TRANSPORTS, Array
from schedlang.msccl.complaints import Complaints
from schedlang.msccl.places import shown
from schedlang.msccl.plan import Kind
from schedlang.msccl.tally import Tally, Word

PROTOCOLS = tuple(TRANSPORTS)
COLLECTIVES = ("allreduce", "allgather", "alltoall", "reduce", "broadcast", "reduce_scatter", "reducescatter", "custom",
               "send", "recv", "gather", "scatter", "alltoallv")
OPERATORS = ("sum", "prod", "min", "max", "nop")
KINDS = tuple(kind.name.lower() for kind in Kind)
SPACES = ("i", "o", "s")

MOST_CHUNKS = 1 << 16
"""How many chunks a buffer may have: offsets have 16 bits in every runtime."""

LONGEST_NAME = 255
"""In characters; no runtime reads longer ones."""

INT32, INT64 = (1 << 31) - 1, (1 << 63) - 1

Range = tuple[int, int]

ALGO_RANGES: Mapping[str, Range] = {
    "nchannels": (1, INT32), "nchunksperloop": (1, MOST_CHUNKS), "ngpus": (1, INT32), "inplace": (0, 1),
    "outofplace": (0, 1), "minBytes": (0, INT64), "maxBytes": (0, INT64)}

ALGO_HELP = {
    "proto": 'write proto="Simple", "LL" or "LL128"',
    "nchannels": "nchannels is 1 more than the largest chan",
    "nchunksperloop": "nchunksperloop is how many chunks the whole buffer has, the input of an allreduce, the output "
                      f"of an allgather: 1 to {MOST_CHUNKS}",
    "ngpus": "ngpus is the number of ranks",
    "coll": f"write one of {', '.join(COLLECTIVES)}",
    "inplace": 'write inplace="1" where input and output may be one buffer, else "0"',
    "outofplace": 'write outofplace="1" where input and output may be two buffers, else "0"',
    "minBytes": "minBytes is the least number of bytes that the file is for",
    "maxBytes": "maxBytes is the largest number of bytes that the file is for",
}

GPU_RANGES: Mapping[str, Range] = {
    "id": (0, INT32), "i_chunks": (0, MOST_CHUNKS), "o_chunks": (0, MOST_CHUNKS), "s_chunks": (0, MOST_CHUNKS)}
BLOCK_RANGES: Mapping[str, Range] = {
    "id": (0, INT32), "send": (NONE, INT32), "recv": (NONE, INT32), "chan": (NONE, INT32)}
STEP_RANGES: Mapping[str, Range] = {
    "s": (0, INT32), "srcoff": (-INT32, INT32), "dstoff": (-INT32, INT32), "cnt": (0, INT32), "depid": (NONE, INT32),
    "deps": (NONE, INT32), "hasdep": (0, 1)}
COPY_RANGES: Mapping[str, Range] = {"i_off": (0, INT32), "o_off": (0, INT32), "cnt": (1, INT32)}

HELP = {
    "id": "ranks, and the blocks of each, are numbered from 0",
    "i_chunks": f"the chunks of the input, at most {MOST_CHUNKS}; 0 where it is not used",
    "o_chunks": f"the chunks of the output, at most {MOST_CHUNKS}; 0 where it is not used",
    "s_chunks": f"the chunks of the scratch buffer, at most {MOST_CHUNKS}",
    "send": "the rank that the block sends to, or -1",
    "recv": "the rank that the block receives from, or -1",
    "chan": "channels are numbered from 0",
    "s": "the steps of a block are numbered from 0, in the order in which they stand there",
    "srcoff": "the first chunk that is read; -1 where nothing is",
    "dstoff": "the first chunk that is written; -1 where nothing is",
    "cnt": "cnt is how many chunks the step moves, at least 1; only a nop has 0",
    "depid": "depid is a block of the same rank, of which a step is waited for, or -1",
    "deps": "deps is the step of block depid that is waited for, or -1",
    "hasdep": 'write hasdep="1" where another step waits for this one, else "0"',
    "i_off": "the chunk of the input that is copied",
    "o_off": "the chunk of the output that it is copied to",
}

_NUMBER = re.compile(r"-?[0-9]{1,19}")


def numbers(tally: Tally, at: Array, ranges: Mapping[str, Range], complaints: Complaints,
            usual: Mapping[str, int] | None = None) -> dict[str, Array]:
    """The numbers (int32) in some attributes of elements, and complaints of what is no number in its range. ``usual``:
    what attributes mean that may lack."""
    columns = {}
    for name, (low, high) in ranges.items():
        words, codes = tally.columns[name].words, tally.columns[name].codes
        if usual is not None and name in usual:
            words = [str(usual[name]) if word is None else word for word in words]
        wrong = [wrong_number(name, word, low, high) for word in words]
        if any(wrong):
            _complain(wrong, codes, at, name, _misspelt(tally, name, words) or HELP[name], complaints)
            columns[name] = np.zeros(len(codes), np.int32)
        else:
            columns[name] = np.array([int(word or 0) for word in words], np.int32)[codes]
    return columns


def choices(tally: Tally, name: str, known: Sequence[str], what: str, at: Array, complaints: Complaints) -> Array:
    """Which of the ``known`` words stand in an attribute of elements (int8), and complaints of others."""
    words, codes = tally.columns[name].words, tally.columns[name].codes
    place = {word: i for i, word in enumerate(known)}
    wrong = [None if word in place else _lacking(name, word) or f"{name}={shown(word or '')} is not {what}"
             for word in words]
    if any(wrong):
        first = next(word for word, why in zip(words, wrong, strict=True) if why)
        _complain(wrong, codes, at, name, _misspelt(tally, name, words) or instead(first or "", known), complaints)
    return np.array([place.get(word or "", 0) for word in words], np.int8)[codes]


def _misspelt(tally: Tally, name: str, words: Sequence[Word]) -> str | None:
    """What an attribute that lacks somewhere was perhaps written as."""
    return meant_by(tally.strange.count, name) if None in words else None


def meant_by(strange: Iterable[str], name: str) -> str | None:
    """Which of the attributes that nothing is known of may be a slip of one that is missing, as help."""
    close = near(name, list(strange), 0.8)
    return f"{close} stands there: did you mean {name}?" if close is not None else None


def _complain(wrong: Sequence[str | None], codes: Array, at: Array, name: str, help: str,
              complaints: Complaints) -> None:
    """``wrong`` says what is wrong with each word, ``codes`` are the words of the elements."""
    bad = np.array([why is not None for why in wrong], bool)
    complaints.each(np.flatnonzero(bad[codes]), at, lambda row: wrong[codes[row]] or "", name, help=help)


def wrong_number(name: str, word: Word, low: int, high: int) -> str | None:
    """What is wrong with a number that is written somewhere."""
    if word is None:
        return _lacking(name, word)
    if not _NUMBER.fullmatch(word):
        long = len(word) > 19 and word.removeprefix("-").isdecimal()
        return f"{name}={shown(word)} is {'too long a number' if long else 'not a whole number'}"
    if not low <= int(word) <= high:
        return f"{name}={shown(word)} is too {'small' if int(word) < low else 'large'}; it can be {low} to {high}"
    return None


def _lacking(name: str, word: Word) -> str | None:
    return f"{name} is missing" if word is None else None


def instead(word: str, known: Sequence[str]) -> str:
    """What to write instead of a word that is not known."""
    close = near(word, known)
    return (f"did you mean {close}? " if close else "") + f"there are {', '.join(known[:-1])} and {known[-1]}"


def near(word: str, known: Sequence[str], least: float = 0.6) -> str | None:
    """The known word that is most like another one, whatever its case."""
    from difflib import get_close_matches

    lower = {name.lower(): name for name in known}
    return next((lower[name] for name in get_close_matches(word[:64].lower(), lower, 1, least)), None)
