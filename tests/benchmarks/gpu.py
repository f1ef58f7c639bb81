"""How fast schedules are on the GPUs of this machine: a table. `gpu.sh` runs this.

The floor of a schedule is what it must read and write, at the speed at which a copy on the same GPU reads and writes,
measured here too; with several GPUs the links count more, and the column says little.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from pathlib import Path

import numpy as np

import schedlang
from schedlang.backends.cuda.arguments import sizes
from schedlang.backends.cupy import CupyBackend, Options
from schedlang.backends.cupy.loaded import load
from schedlang.backends.cupy.machine import Memory
from schedlang.backends.cupy.order import Kind, order
from schedlang.ir.layout import Layout
from schedlang.running.binding import Bound, starts
from schedlang.running.dtypes import named

EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEDULES = ["allreduce/ring.sched::ring", "allreduce/all_pairs.sched::all_pairs",
             "allreduce/halving_doubling.sched::halving_doubling", "allgather/ring.sched::ring_all_gather"]
EMPTY = 'extern "C" __global__ void nothing(const int) {}'
RUNS = 7
AT_ONCE = 20
"""Launches one after the other in a run, where they need no new inputs to take as long."""


def each(call, wait):
    """The median of the seconds that a call takes, of several in a row."""
    for _ in range(3):
        call()
    wait()
    found = []
    for _ in range(RUNS):
        begun = time.perf_counter()
        for _ in range(AT_ONCE):
            call()
        wait()
        found.append((time.perf_counter() - begun) / AT_ONCE)
    return statistics.median(found)


def copy_speed(stream, size):
    """Bytes a second that are read and written together, in a copy on GPU 0."""
    from cupy.cuda import runtime

    a, b = Memory(0, size), Memory(0, size)
    seconds = each(lambda: runtime.memcpyAsync(a.address, b.address, size, runtime.memcpyDefault, stream.ptr),
                   stream.synchronize)
    return 2 * size / seconds


def latency(stream):
    """Seconds of an empty cooperative kernel, launched and waited for one at a time."""
    function = load(EMPTY, "nothing", [0])[0]
    argument = (ctypes.c_int * 1)()

    def call():
        function.launch(32, argument, stream, together=True)
        stream.synchronize()

    return each(call, lambda: None)


def traffic(normal, layout, itemsize):
    """Bytes that a normal form reads and writes."""
    found, total = sizes(layout, itemsize), 0
    for item in order(normal).items:
        if item.kind == Kind.MOVE:
            length = sum(found.values.length(item.like + k) for k in range(item.count))
            total += length * itemsize * (2 if item.own is None else 3)
    return total


def in_torch(normal, layout, devices):
    """The same with operations of torch on streams; None where torch has no CUDA."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    given, found, table = order(normal), sizes(layout, 4), normal.table
    arrays = [[torch.ones(int(layout.count(b)[rank]), device=f"cuda:{devices[rank]}")
               for b in range(len(table.buffers))] for rank in range(table.ranks)]
    streams = [torch.cuda.Stream(f"cuda:{devices[rank]}") for rank, _ in given.lanes]
    events = [torch.cuda.Event() for _ in given.events]

    def part(place, item):
        cut = found.cuts[place.buffer]
        start, end = cut.start(place.chunk), cut.start(place.chunk + item.count - 1)
        return arrays[place.rank][place.buffer][start : end + found.values.length(item.like + item.count - 1)]

    acts = []
    for item in given.items:
        stream = streams[item.lane]
        if item.kind == Kind.RECORD:
            acts.append((stream, lambda s=stream, e=events[item.event]: e.record(s)))
        elif item.kind == Kind.WAIT:
            acts.append((stream, lambda s=stream, e=events[item.event]: s.wait_event(e)))
        elif item.own is None:
            into, from_ = part(item.into, item), part(item.from_, item)
            acts.append((stream, lambda a=into, b=from_: a.copy_(b, non_blocking=True)))
        else:
            into, own, from_ = part(item.into, item), part(item.own, item), part(item.from_, item)
            acts.append((stream, lambda a=into, b=own, c=from_: torch.add(b, c, out=a)))

    def call():
        for stream, act in acts:
            with torch.cuda.stream(stream):
                act()

    return each(call, torch.cuda.synchronize)


def prepared(backend, table, elements):
    """A schedule that is ready to be launched."""
    dtype = named("float32")
    bound = Bound(dtype, Layout(table, elements))
    inputs = [{name: np.ones(sum(bound.lengths_of(name, rank, chunks).tolist()), np.float32)
               for name, chunks in here.items()} for rank, here in enumerate(starts(table))]
    backend.run(table, inputs, op=None)
    kept = backend._kept[0]
    return kept, bound, kept.ready(table, bound, dtype)[1]


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 4 << 10, 1 << 20, 64 << 20, 256 << 20])
    asked = parser.parse_args(arguments)
    until = time.monotonic() + asked.seconds
    from cupy.cuda import Device, Stream, runtime

    with Device(0):
        stream = Stream(non_blocking=True)
    card = runtime.getDeviceProperties(0)["name"].decode()
    speed, empty = copy_speed(stream, max(asked.sizes)), latency(stream)
    print(f"\n{card}, {runtime.getDeviceCount()} of them, {asked.ranks} ranks, float32; CUDA "
          f"{runtime.driverGetVersion() // 1000} driver")
    print(f"a copy reads and writes {speed / 1e9:,.0f} GB/s; an empty cooperative kernel takes {empty * 1e6:.1f} us\n")
    print("| schedule | bytes a rank | kernel | of the floor | streams (graph) | torch on streams |")
    print("|---|---|---|---|---|---|")
    for size in asked.sizes:
        for which in SCHEDULES:
            if time.monotonic() > until:
                print("(out of time)")
                return
            path, name = which.split("::")
            table = schedlang.load(f"{EXAMPLES / path}::{name}", ranks=asked.ranks).table
            elements = max(1, size // 4)
            elements += -elements % asked.ranks
            kept, bound, launch = prepared(CupyBackend(), table, elements)
            kernel = each(lambda k=kept, p=launch: k.runner.start(p),
                          lambda k=kept: [s.synchronize() for s in k.streams.values()])
            one = each(lambda k=kept, p=launch: k.runner.launch(p, 60), lambda: None) if size <= 4096 else None
            normal, devices = kept.runner.normal, kept.where.of
            layout = Layout(normal.table, bound.elements)
            floor = traffic(normal, layout, 4) / speed
            kept, _, launch = prepared(CupyBackend(options=Options("streams")), table, elements)
            graph = each(lambda k=kept, p=launch: k.runner.launch(p, 60), lambda: None)
            torch = in_torch(normal, layout, devices)
            alone = "" if one is None else f" ({one * 1e6:.1f} waited for)"
            print(f"| {name} | {size:,} | {kernel * 1e6:.1f} us{alone} | {floor / kernel:.0%} | {graph * 1e6:.1f} us | "
                  f"{'-' if torch is None else f'{torch * 1e6:.1f} us'} |", flush=True)


if __name__ == "__main__":
    main()
