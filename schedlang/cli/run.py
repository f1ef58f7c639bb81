"""``schedlang run``: executes a schedule on real arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from schedlang.cli.common import (
    EXIT_CLEAN,
    EXIT_FINDINGS,
    bad_option,
    load_table,
    named_dtype,
    output_file,
    show,
    value_options,
)
from schedlang.cli.executing import OnRanks, in_bytes, progress_bar, short_time, within_memory
from schedlang.diagnostics import Diagnostic, error
from schedlang.loading import split_name

if TYPE_CHECKING:
    from schedlang.backend import Backend
    from schedlang.ir.table import OpTable
    from schedlang.running.measure import Measurement
    from schedlang.running.reference import Comparison


def _numbers(context: click.Context, option: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    """The callback of an option with numbers: ``0,1,2,3``."""
    if text is None:
        return None
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise bad_option(f"--{option.name} {text}: these are no numbers", help="for example --devices 0,1,2,3")
    return tuple(map(int, words))


@click.command(cls=OnRanks)
@click.argument("schedule", metavar="FILE[::NAME]")
@click.option("--ranks", metavar="N", help="How many ranks.")
@value_options
@click.option("--size", metavar="BYTES", help="Bytes of the buffer on each rank (the long one, where it has a block "
                                              "for each rank): 4096, 64MiB, 1.5GB. Default: about 1 MiB. Collectives "
                                              "with counts take it from these.")
@click.option("--elements", type=click.IntRange(min=0, max=(1 << 63) - 1), metavar="N", help="The same in elements.")
@click.option("--input", "source", metavar="FILE",
              help="Inputs from an .npz file (rank0, rank1, ... or one stacked array).")
@click.option("--dtype", "dtype_name", metavar="DTYPE", callback=named_dtype,
              help="float16, bfloat16, float32 (default), float64, int8 to uint64, bool.")
@click.option("--backend", "backend_name", metavar="NAME", default="numpy", show_default=True, help="What executes it.")
@click.option("--device", metavar="DEVICE",
              help="Of the back end torch: cpu (over Gloo) or cuda (over NCCL, a GPU a rank). Default: cuda where "
                   "there are enough GPUs.")
@click.option("--processes", is_flag=True,
              help="Of the back end native: each rank a process of its own, not a thread of this one.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
              help="Of the back end torch: how long a rank waits for another (default 300); of native and cupy: how "
                   "long an execution may take (default 300 and 60).")
@click.option("--devices", metavar="N,N,...", callback=_numbers,
              help="Of the back end cupy: the GPUs to use, one for each rank or several ranks on each. Default: all.")
@click.option("--mode", metavar="MODE",
              help="Of the back end cupy: kernel (one on each GPU; the default) or streams (copies and small kernels, "
                   "as a CUDA graph).")
@click.option("--blocks", type=click.IntRange(min=1), metavar="N",
              help="Of the back ends cupy and native: how many blocks share the work of each (rank, stream).")
@click.option("--slice", "slice_text", metavar="BYTES",
              help="Of the back ends cupy and native: how much of a chunk a (rank, stream) takes at a time, all its "
                   "blocks together: 256KiB.")
@click.option("--accumulate", metavar="DTYPE", callback=named_dtype,
              help="Hold values in this wider dtype until the end, for example float32.")
@click.option("--repeat", type=click.IntRange(min=1), metavar="N", default=1, show_default=True,
              help="Run N times and take the shortest.")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", default=0, show_default=True,
              help="For the random inputs.")
@click.option("--check", is_flag=True, help="Compare with a float64 reference; exit 1 where the result is wrong.")
@click.option("--sends", "sends_text", metavar="MODEL", default="default", show_default=False,
              help="Prove it right first for connections that buffer this much: rendezvous, buffered=N, unlimited, "
                   "LL, LL128 or Simple, as for verify. Default: for all.")
@click.option("--no-verify", is_flag=True, help="Run a schedule without proving it right first.")
@click.option("-o", "--output", metavar="FILE", help="Write the results to an .npz file.")
@click.option("--json", "as_json", is_flag=True, help="Show the figures as JSON.")
def command(schedule: str, ranks: str | None, parameters: tuple[str, ...], op: str | None, max_ops: int | None,
            size: str | None, elements: int | None, source: str | None, dtype_name: str | None, backend_name: str,
            device: str | None, processes: bool, timeout: float | None, devices: tuple[int, ...] | None,
            mode: str | None, blocks: int | None, slice_text: str | None, accumulate: str | None, repeat: int,
            seed: int, check: bool, sends_text: str, no_verify: bool, output: str | None, as_json: bool) -> int:
    """Execute a schedule on real arrays: all ranks in this process, or with --backend torch each in one of its own.

    FILE is a schedule, an op table in JSON, or MSCCL XML (.xml, .xml.gz). Shows the time, and bandwidths as nccl-tests
    defines them. Ranks that torchrun has started are used; then only rank 0 says something.

    A parameter that is not given has its default, or, where it has none, its value in the first case of the `verify`
    line that fits. --ranks has to be given unless `ranks` has a default or is computed from the parameters.
    """
    from schedlang.backend import Distributed, find
    from schedlang.running import inputs as make
    from schedlang.running.binding import Bound
    from schedlang.running.calls import Call
    from schedlang.running.dtypes import named
    from schedlang.running.measure import measure
    from schedlang.schedule import Schedule
    from schedlang.verify.sends import Sends

    if output == "-":
        raise bad_option("--output -: the results are a file of arrays", help="name a file: --output results.npz")
    output = output_file(output, split_name(schedule)[0])
    sends = Sends.parse(sends_text)
    if sum(given is not None for given in (size, elements, source)) > 1:
        raise bad_option("--size, --elements and --input each say how large the arrays are", help="give one of them")
    dtype = None if dtype_name is None else named(dtype_name)
    choices = {"devices": devices, "mode": mode, "blocks": blocks,
               "slice": None if slice_text is None else make.bytes_of(slice_text)}
    runner = _on(find(backend_name), device, processes, timeout, choices)
    place = runner.place() if isinstance(runner, Distributed) else None
    rank = None if place is None else place.rank
    this = compared = bound = None
    with within_memory():
        table, findings = load_table(schedule, ranks=ranks, texts=parameters, op=op, max_ops=max_ops)
        if not rank:
            show(findings, err=True)
        if not no_verify:
            Schedule(table).require_right(sends=sends)
        if source is not None:
            this = Call.of(table, make.from_file(source, table, dtype))
            arrays = this.inputs
        else:
            dtype = dtype or named("float32")
            layout = make.sized(table, dtype, elements, None if size is None else make.bytes_of(size))
            bound = Bound(dtype, layout)
            mine = rank if rank or not check else None          # who checks needs those of all ranks
            arrays = make.random_inputs(table, layout, dtype, table.collective.op, seed, mine)
        with progress_bar() as progress:
            taken = measure(table, arrays, runner, accumulate=accumulate, repeat=repeat, progress=progress, bound=bound)
        if rank:
            return EXIT_CLEAN
        if check:
            from schedlang.running.reference import compare

            compared = compare(table, arrays, taken.outputs, accumulate=accumulate)
    if output is not None:
        make.save(output, this.results(taken.outputs) if this is not None else [
            dict(here) if len(here) > 1 else next(iter(here.values()), None) for here in taken.outputs])
    click.echo(_json(table, taken, backend_name, accumulate, compared) if as_json else _text(table, taken, compared))
    if compared is not None and not compared.ok:
        show([_wrong(compared)], err=True)
        return EXIT_FINDINGS
    return EXIT_CLEAN


def _on(runner: Backend, device: str | None, processes: bool, timeout: float | None,
        choices: dict[str, Any]) -> Backend:
    """A back end with the options that are not for all of them."""
    from schedlang.backend import Adjustable, Distributed

    if not isinstance(runner, Distributed):
        choices = {**choices, "timeout": timeout}
    given = {name: value for name, value in choices.items() if value is not None}
    known = runner.choices if isinstance(runner, Adjustable) else ()
    foreign = next((name for name in given if name not in known and name != "timeout"), None)
    if foreign is not None:
        raise bad_option(f"--{foreign} is not for the back end {runner.name}",
                         help="leave it out, or choose another back end with --backend")
    if isinstance(runner, Adjustable) and given.keys() <= set(known):
        runner, timeout = runner.chosen(**given), None if "timeout" in given else timeout
    if processes:
        if not hasattr(runner, "in_processes"):
            raise bad_option(f"--processes is not for the back end {runner.name}", help="add --backend native")
        runner = runner.in_processes()
    if isinstance(runner, Distributed):
        return runner.on(device=device, timeout=timeout, everywhere=False)
    if device is not None or timeout is not None:
        raise bad_option(f"--device and --timeout are not for the back end {runner.name}: its ranks are one process",
                         help="leave them out, or add --backend torch")
    return runner


def _text(table: OpTable, taken: Measurement, compared: Comparison | None) -> str:
    c = table.collective
    noun = "rank" if table.ranks == 1 else "ranks"
    most = " at most in the input of a rank" if c.name == "alltoallv" else ""
    lines = [f"{table.name}: {c.name}{f'({c.op})' if c.op else ''} on {table.ranks} {noun}, {taken.dtype.name}, "
             f"{taken.elements:,} {'element' if taken.elements == 1 else 'elements'} ({in_bytes(taken.bytes)}){most}"]
    best = f"   the shortest of {len(taken.seconds)}" if len(taken.seconds) > 1 else ""
    lines.append(f"  time    {short_time(min(taken.seconds))}{best}")
    for label, rate in (("algbw", taken.algbw), ("busbw", taken.busbw)):
        lines.append(f"  {label}   " + ("n/a" if rate is None else f"{rate / 1e9:.3g} GB/s"))
    if compared is not None and not compared.compared:
        lines.append("  check   nothing to compare: no element is promised to hold anything")
    elif compared is not None:
        verdict = "right" if compared.ok else "WRONG"
        what = "all equal" if compared.largest == 0 else f"largest error {compared.largest:.3g}"
        if compared.ok and compared.largest:
            what += f", {compared.share:.1%} of what rounding explains"
        if compared.unjudged:
            what += f", {compared.unjudged:,} beyond the range of {taken.dtype.name} not judged"
        lines.append(f"  check   {verdict}: {compared.compared:,} elements, {what}")
    return "\n".join(lines)


def _json(table: OpTable, taken: Measurement, backend: str, accumulate: str | None, compared: Comparison | None) -> str:
    import json
    import math

    from schedlang.running.dtypes import accumulator

    c = table.collective
    params = {k: v.tolist() if hasattr(v, "tolist") else v for k, v in table.params.items()}
    document: dict[str, Any] = {
        "schedule": table.name, "collective": c.name, "op": c.op, "ranks": table.ranks, "params": params,
        "backend": backend, "dtype": taken.dtype.name, "accumulate": accumulator(accumulate, taken.dtype).name,
        "elements": taken.elements, "bytes": taken.bytes, "seconds": taken.seconds,
        "algbw": taken.algbw, "busbw": taken.busbw,
        "check": None if compared is None else {
            "ok": compared.ok, "compared": compared.compared, "wrong": compared.wrong, "unjudged": compared.unjudged,
            "largest_error": compared.largest if math.isfinite(compared.largest) else str(compared.largest)},
    }
    return json.dumps(document, indent=2)


def _wrong(compared: Comparison) -> Diagnostic:
    assert compared.worst is not None
    at, got, wanted, allowed = compared.worst
    explained = f", which rounding does not explain (it allows {allowed:.3g})" if allowed else ""
    return error("SL805", f"element {at.start} of {at.buffer} on rank {at.rank} is {got:.9g}, but the reference is "
                          f"{wanted:.9g}{explained}; {compared.wrong:,} of {compared.compared:,} elements are wrong",
                 help="see what `schedlang verify` says of the schedule; if it is right, the back end is not",
                 rank=at.rank, buffer=at.buffer, element=at.start)
