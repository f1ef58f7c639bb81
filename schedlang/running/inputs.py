"""Inputs for a run: random ones of a size, or a person's own from a file; and results into a file."""

from __future__ import annotations

import math
import re
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.files import write_file
from schedlang.ir.layout import Layout
from schedlang.ir.table import Array, OpTable
from schedlang.memory import require
from schedlang.ops import COLLECTIVES
from schedlang.running.binding import index_of, starts
from schedlang.running.dtypes import Dtype

DEFAULT_ELEMENTS = 1 << 18

_UNITS = {"": 1, "b": 1}
for _power, _prefix in enumerate("kmgt", 1):
    _UNITS |= {_prefix: 1024**_power, f"{_prefix}ib": 1024**_power, f"{_prefix}b": 1000**_power}

_OF_A_RANK = re.compile(r"rank([0-9]{1,9})(?:\.(\w+))?")

# What NumPy, zipfile, zlib and Python's parser (of an array's header) raise for damaged files and for other kinds.
_UNREADABLE = (ValueError, TypeError, EOFError, OverflowError, RuntimeError, KeyError, SyntaxError, tokenize.TokenError,
               zipfile.BadZipFile, zlib.error)


def bytes_of(text: str) -> int:
    """A size in bytes: ``4096``, ``64MiB``, ``1.5GB``; ``K M G T`` alone are binary. Raises SchedError (SL806)."""
    match = re.fullmatch(r"\s*(\d{1,19})(\.\d{1,9})?\s*([A-Za-z]*)\s*", text)
    if match is None or match[3].lower() not in _UNITS:
        raise SchedError(error("SL806", f"{text!r} is no size",
                               help="write a number of bytes, for example 4096, 64MiB or 1.5GB"))
    unit = _UNITS[match[3].lower()]
    whole, fraction = int(match[1]), match[2] or ""
    part = int(fraction[1:] or 0) * unit
    scale = 10 ** max(0, len(fraction) - 1)
    if part % scale:
        raise SchedError(error("SL806", f"{text} is not a whole number of bytes", help="write it in a smaller unit"))
    return whole * unit + part // scale


def sized(table: OpTable, dtype: Dtype, elements: int | None = None, size: int | None = None) -> Layout:
    """The sizes of a run of ``elements``, or of ``size`` bytes of the buffer (of the long one where there are
    blocks), or of about a mebibyte where nothing is said.

    Raises SchedError (SL802), with the nearest sizes that fit, and where a size is given but counts say it.
    """
    family = COLLECTIVES[table.collective.name].family
    if family == "vector" and (elements is not None or size is not None):
        raise SchedError(error(
            "SL802", f"the sizes of {table.collective.name} are what its counts say, and one is given besides",
            table.collective.location or table.location,
            help="leave out --size and --elements; other counts make other sizes"))
    if family == "barrier" and (elements or size):
        raise SchedError(error("SL802", "a barrier moves no elements", table.collective.location or table.location,
                               help="leave out --size and --elements"))
    itemsize = dtype.numpy.itemsize
    if size is not None:
        if size % itemsize:
            below = size // itemsize * itemsize
            raise SchedError(error(
                "SL802", f"{size} bytes are no whole number of elements of {dtype.name}, which have {itemsize}",
                                   help=f"the nearest that are: {below} and {below + itemsize} bytes"))
        elements = size // itemsize
    if elements is None and family not in ("vector", "barrier"):
        unit = table.ranks if family == "blocked" else 1
        if family == "custom":
            unit = max(1, next((b.chunks for name in ("input", "data") for b in table.buffers if b.name == name), 1))
        elements = max(1, DEFAULT_ELEMENTS // unit) * unit
    return Layout(table, elements)


def random_inputs(table: OpTable, layout: Layout, dtype: Dtype, op: str | None, seed: int,
                  only: int | None = None) -> list[dict[str, Array]]:
    """Inputs as a back end takes them; the same for the same seed, and for each rank others. ``only``: those of one
    rank, and nothing for the others.

    Floats lie between -1 and 1 (for a product, near 1 in size); integers take all values there are. Raises MemoryError
    where there is less memory than they take.
    """
    require(sum(_elements(table, layout, name, rank, chunks) for rank, here in enumerate(starts(table))
                for name, chunks in here.items() if only in (None, rank)) * dtype.numpy.itemsize)
    inputs: list[dict[str, Array]] = []
    for rank, here in enumerate(starts(table)):
        generator = np.random.default_rng([seed, rank])
        given = {}
        for name, chunks in here.items() if only in (None, rank) else ():
            given[name] = _random(generator, _elements(table, layout, name, rank, chunks), dtype, op, table.ranks)
        inputs.append(given)
    return inputs


def _elements(table: OpTable, layout: Layout, name: str, rank: int, chunks: range) -> int:
    """How many elements some chunks of a buffer have on a rank."""
    bounds = layout.starts(index_of(table, name), rank)
    return int(bounds[chunks.stop] - bounds[chunks.start])


def _random(generator: np.random.Generator, length: int, dtype: Dtype, op: str | None, ranks: int) -> Array:
    if length > (1 << 59):                              # NumPy calls that a ValueError
        raise MemoryError
    if dtype.kind == "b":
        return generator.integers(0, 2, length, np.uint8).astype(np.bool_)
    if dtype.kind in "iu":
        info = np.iinfo(dtype.numpy)
        return generator.integers(info.min, info.max, length, dtype.numpy, endpoint=True)
    values: Array = generator.random(length, np.float64 if dtype.name == "float64" else np.float32)
    values *= 2
    values -= 1
    if op == "prod":
        values = np.copysign(1 + values / max(2, ranks), generator.random(length) - 0.5)
    return values.astype(dtype.numpy, copy=False)


def from_file(path: str, table: OpTable, dtype: Dtype | None) -> Any:
    """The inputs in an .npz file (one array a rank: rank0, rank1, ..., or rank0.BUFFER; or a single stacked array),
    or a stacked one in an .npy file; converted to ``dtype`` where one is given. NumPy stores bfloat16 as two bytes
    without meaning, so that dtype must be given.

    Raises SchedError: SL801 where the file cannot be read or does not say whose its arrays are, SL803 where ``dtype``
    is of integers and cannot hold a value.
    """
    arrays = {name: _converted(array, dtype, f"{name or 'the array'} of {path}") for name, array in _read(path).items()}
    if len(arrays) == 1 and not _OF_A_RANK.fullmatch(next(iter(arrays))):
        return next(iter(arrays.values()))
    entries: list[Any] = [None] * table.ranks
    for name, array in arrays.items():
        match = _OF_A_RANK.fullmatch(name)
        if match is None or int(match[1]) >= table.ranks:
            raise SchedError(error(
                "SL801", f"{path} has an array {name}, which belongs to none of the {table.ranks} ranks",
                                   help=f"call the arrays rank0 to rank{table.ranks - 1}, or give one stacked array"))
        rank, buffer = int(match[1]), match[2]
        held = entries[rank]
        if held is not None and (buffer is None or not isinstance(held, dict) or buffer in held):
            raise SchedError(error("SL801", f"{path} has {name} and another array for the same place on rank {rank}",
                                   help="give one of them"))
        entries[rank] = array if buffer is None else {**(held or {}), buffer: array}
    return entries


def _read(path: str) -> dict[str, Array]:
    """The arrays in an .npz file by name, or the one of an .npy file, without a name."""
    try:
        loaded: Any = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            arrays = {name: loaded[name] for name in loaded.files}
    except _UNREADABLE as cause:
        raise SchedError(error("SL801", f"{path} is no .npz or .npy file of numbers: {cause}")) from None
    except OSError as cause:
        raise SchedError(error("SL801", f"cannot read {path}: {cause.strerror or cause}")) from None
    except MemoryError:
        raise SchedError(error("SL801", f"{path} says that it holds more than fits into memory")) from None
    foreign = next((name for name, array in arrays.items() if not isinstance(array, np.ndarray)), None)
    if foreign is not None:
        raise SchedError(error("SL801", f"{path} holds {foreign}, which is no array"))
    return arrays


def _converted(array: Array, dtype: Dtype | None, what: str) -> Array:
    if dtype is None or array.dtype == dtype.numpy:
        return array
    if dtype.name == "bfloat16" and array.dtype == np.dtype("V2"):
        return array.view(dtype.numpy)
    if array.dtype.kind not in "fiub":
        return array
    if dtype.kind in "iu" and array.size:
        info = np.iinfo(dtype.numpy)
        for value in (array.min().item(), array.max().item()):          # NaN where there is one
            if not (math.isfinite(value) and info.min <= int(value) <= info.max):
                raise SchedError(error("SL803", f"{what} contains {value}, which {dtype.name} cannot hold",
                                       help="choose another --dtype"))
    with np.errstate(all="ignore"):
        return array.astype(dtype.numpy)


def save(path: str, results: Any) -> None:
    """Write results as rank0, rank1, ... (rank0.BUFFER where a rank has several) to an .npz file: all of it or nothing.

    Raises SchedError (SL807).
    """
    arrays: dict[str, Array] = {}
    entries: Sequence[Any] = results
    for rank, entry in enumerate(entries):
        if isinstance(entry, Mapping):
            arrays |= {f"rank{rank}.{name}": value for name, value in entry.items()}
        elif entry is not None:
            arrays[f"rank{rank}"] = entry
    write_file(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]  # the stub lets no dict through
