"""``schedlang compile``: a schedule in another form."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from schedlang.cli.common import EXIT_CLEAN, bad_option, load_table, output_file, put, show, value_options
from schedlang.loading import split_name

if TYPE_CHECKING:
    from schedlang.ir.table import OpTable


@dataclass(frozen=True)
class Wanted:
    """What a file is to be. ``output``: its name; None: the standard output. ``dtype``: of its values; None: not
    said."""

    output: str | None
    dtype: str | None


def _json(table: OpTable, _: Wanted) -> str:
    from schedlang.ir.json import dumps

    return dumps(table)


def _source(table: OpTable, _: Wanted) -> str:
    from schedlang.lift import source

    return source(table)


def _torch(table: OpTable, wanted: Wanted) -> str:
    from schedlang.backends.torch.emit import source

    output = wanted.output
    device = output is not None and os.path.exists(output) and not os.path.isfile(output)
    return source(table, None if output is None or device else os.path.basename(output))


def _cuda(table: OpTable, wanted: Wanted) -> str:
    from schedlang.backends.cuda import source

    return source(table, dtype=wanted.dtype or "float32")


TARGETS: dict[str, tuple[str, Callable[[OpTable, Wanted], str]]] = {
    "json": ("the op table, for programs of your own", _json),
    "sched": ("source for this size, with loops where it is regular", _source),
    "torch": ("a Python file that needs only PyTorch", _torch),
    "cuda": ("CUDA C++, one kernel for all lanes", _cuda),
}
"""The forms there are: name -> (what it is, the function that makes its text)."""

TYPED = ("cuda",)
"""Those that are for one dtype."""


@click.command()
@click.argument("schedule", metavar="FILE[::NAME]")
@click.option("--target", metavar="TARGET", required=True, help=f"The form: {', '.join(TARGETS)}.")
@click.option("--ranks", metavar="N", help="How many ranks.")
@value_options
@click.option("--dtype", metavar="DTYPE", help=f"The dtype of values ({', '.join(TYPED)} only; float32 by default).")
@click.option("-o", "--output", metavar="FILE", help="Write the result to FILE instead of the standard output.")
def command(schedule: str, target: str, ranks: str | None, parameters: tuple[str, ...], op: str | None,
            max_ops: int | None, dtype: str | None, output: str | None) -> int:
    """Write a schedule in another form.

    FILE is a schedule, an op table in JSON, or MSCCL XML (.xml, .xml.gz). The targets torch and cuda prove it first;
    for the others see `schedlang verify`.

    The target sched is readable source for one size: loops and formulas where the operations are regular, plain steps
    where they are not. Before it is written it was expanded and compared: it has the same operations as FILE, but for
    the names of streams, connections, events and scratch.

    The target torch is one readable Python file: the steps with their loops, a function that takes tensors and a
    process group, and what executes them over NCCL or Gloo. `torchrun --nproc-per-node N FILE` compares it with
    PyTorch's own collective and times both. What is not proved right where connections hold no messages is refused.

    The target cuda is CUDA C++ for one dtype and operator: one kernel, whose blocks are the streams of ranks, with
    their loops. nvcc, NVRTC and C++ compilers take it; `schedlang run` executes it.

    A parameter that is not given has its default, or, where it has none, its value in the first case of the `verify`
    line that fits. --ranks has to be given unless `ranks` has a default or is computed from the parameters.
    """
    if target not in TARGETS:
        raise bad_option(f"--target {target}: there is no such target",
                         help="there are " + ", ".join(f"{name} ({what})" for name, (what, _) in TARGETS.items()))
    if dtype is not None and target not in TYPED:
        raise bad_option(f"--dtype {dtype}: the target {target} serves all dtypes", help="leave the option out")
    output = output_file(output, split_name(schedule)[0])
    table, findings = load_table(schedule, ranks=ranks, texts=parameters, op=op, max_ops=max_ops)
    show(findings, err=True)
    text = TARGETS[target][1](table, Wanted(output, dtype))
    put(text if text.endswith("\n") else text + "\n", output)
    return EXIT_CLEAN
