"""``schedlang compile``: a schedule in another form."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from schedlang.cli.common import EXIT_CLEAN, bad_option, load_table, output_file, put, show, value_options
from schedlang.loading import split_name

if TYPE_CHECKING:
    from schedlang.ir.table import OpTable


def _json(table: OpTable, _: str | None) -> str:
    from schedlang.ir.json import dumps

    return dumps(table)


def _source(table: OpTable, _: str | None) -> str:
    from schedlang.lift import source

    return source(table)


def _torch(table: OpTable, output: str | None) -> str:
    from schedlang.backends.torch.emit import source

    device = output is not None and os.path.exists(output) and not os.path.isfile(output)
    return source(table, None if output is None or device else os.path.basename(output))


TARGETS: dict[str, tuple[str, Callable[[OpTable, str | None], str]]] = {
    "json": ("the op table, for programs of your own", _json),
    "sched": ("source for this size, with loops where it is regular", _source),
    "torch": ("a Python file that needs only PyTorch", _torch),
}
"""The forms there are: name -> (what it is, the function that makes its text for a file; None: the standard output)."""


@click.command()
@click.argument("schedule", metavar="FILE[::NAME]")
@click.option("--target", metavar="TARGET", required=True, help=f"The form: {', '.join(TARGETS)}.")
@click.option("--ranks", metavar="N", help="How many ranks.")
@value_options
@click.option("-o", "--output", metavar="FILE", help="Write the result to FILE instead of the standard output.")
def command(schedule: str, target: str, ranks: str | None, parameters: tuple[str, ...], op: str | None,
            max_ops: int | None, output: str | None) -> int:
    """Write a schedule in another form.

    FILE is a schedule, an op table in JSON, or MSCCL XML (.xml, .xml.gz). Only the target torch proves it first; for
    the others see `schedlang verify`.

    The target sched is readable source for one size: loops and formulas where the operations are regular, plain steps
    where they are not. Before it is written it was expanded and compared: it has the same operations as FILE, but for
    the names of streams, connections, events and scratch.

    The target torch is one readable Python file: the steps with their loops, a function that takes tensors and a
    process group, and what executes them over NCCL or Gloo. `torchrun --nproc-per-node N FILE` compares it with
    PyTorch's own collective and times both. What is not proved right where connections hold no messages is refused.

    A parameter that is not given has its default, or, where it has none, its value in the first case of the `verify`
    line that fits. --ranks has to be given unless `ranks` has a default or is computed from the parameters.
    """
    if target not in TARGETS:
        raise bad_option(f"--target {target}: there is no such target",
                         help="there are " + ", ".join(f"{name} ({what})" for name, (what, _) in TARGETS.items()))
    output = output_file(output, split_name(schedule)[0])
    table, findings = load_table(schedule, ranks=ranks, texts=parameters, op=op, max_ops=max_ops)
    show(findings, err=True)
    text = TARGETS[target][1](table, output)
    put(text if text.endswith("\n") else text + "\n", output)
    return EXIT_CLEAN
