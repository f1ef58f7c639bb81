"""What compilers for GPUs say of the kernels: nothing, for all kinds of GPUs; and what registers they need.

No GPU is needed: NVRTC compiles without one. Without CuPy and NVRTC, or without nvcc, their tests are skipped.
"""

import re
import shutil
import subprocess
import time
from functools import cache

import pytest

from schedlang.backends.cuda import kernel
from schedlang.backends.cuda.head import copied
from schedlang.backends.cupy import CupyBackend, compiler, streams
from schedlang.backends.cupy.loaded import THREADS
from schedlang.diagnostics import SchedError
from schedlang.running.dtypes import DTYPES, named
from tests.backends.native.test_native import case_of, defined
from tests.backends.torch.shipped import EXAMPLES, SCHEDULES, shipped

ARCHITECTURES = (75, 80, 90, 100)
QUICK = ("allreduce/ring.sched::ring", "allreduce/two_tier.sched::two_tier",
         "alltoallv/bruck.sched::bruck_all_to_all_v", "broadcast/staged_chain.sched::staged_chain")
SECONDS = 3.0
"""To write and to compile a kernel, at most."""
SPILLED = 1024
"""Bytes that may go to memory for want of registers: where formulas are long, some do, once a step."""


def nvrtc_is_there():
    try:
        return compiler.missing() is None
    except ImportError:
        return False


@cache
def nvcc():
    return shutil.which("nvcc")


needs_nvrtc = pytest.mark.skipif(not nvrtc_is_there(), reason="CuPy or NVRTC is not installed (schedlang[cuda13])")
needs_nvcc = pytest.mark.skipif(nvcc() is None, reason="nvcc is not installed")


def at_8_ranks(path, name):
    """At 8 ranks where the schedule is for so many."""
    table = shipped(path, name, 8)
    return case_of(path, name) if table is None else table


def reported(text):
    """Registers, and bytes spilled, as ptxas tells."""
    registers = max(map(int, re.findall(r"Used (\d+) registers", text)))
    return registers, sum(map(int, re.findall(r"(\d+) bytes spill", text)))


def by_nvrtc(source, capability):
    """What NVRTC says beside what ptxas tells of registers; those, and the CPU seconds that it took."""
    begun = time.process_time()
    options = (*compiler.OPTIONS, f"--gpu-architecture=sm_{capability}", "--ptxas-options=--verbose")
    image, log = compiler._compile(source, options, True)
    took = time.process_time() - begun
    assert image[:4] == b"\x7fELF"
    other = [line for line in log.splitlines() if "ptxas info" not in line and "bytes stack frame" not in line
             and line.strip()]
    return other, reported(log), took


def require_quiet(source, capability):
    said, (registers, spilled), took = by_nvrtc(source, capability)
    assert not said, said
    assert registers <= 65536 // THREADS and spilled <= SPILLED, (registers, spilled)
    return registers, spilled, took


@needs_nvrtc
@pytest.mark.parametrize("capability", ARCHITECTURES)
@pytest.mark.parametrize("which", QUICK)
def test_nvrtc_says_nothing(which, capability):
    begun = time.process_time()
    source = kernel(at_8_ranks(*which.split("::")), dtype=named("float32"), op=None).text
    written = time.process_time() - begun
    *_, took = require_quiet(source, capability)
    assert written + took < SECONDS


@needs_nvrtc
@pytest.mark.parametrize("name,op", [("float16", "sum"), ("bfloat16", "max"), ("int8", "prod"), ("bool", "band")])
def test_nvrtc_says_nothing_of_other_dtypes(name, op):
    require_quiet(kernel(shipped("allreduce/ring.sched", "ring", 8), dtype=named(name), op=op).text, 90)
    if name != "bool":                                      # which is combined as uint8
        require_quiet(streams.combining(name, op), 75)


@needs_nvrtc
@pytest.mark.nightly
def test_nvrtc_says_nothing_of_any_schedule():
    """The full product, and a table of what it took."""
    print()
    for path, name in SCHEDULES:
        begun = time.process_time()
        source = kernel(at_8_ranks(path, name), dtype=named("float32"), op=None).text
        written = time.process_time() - begun
        found = [require_quiet(source, capability) for capability in ARCHITECTURES]
        registers, spilled, seconds = zip(*found)
        assert written + max(seconds) < SECONDS, (path, name)
        print(f"{path}::{name}: {'/'.join(map(str, registers))} registers, {'/'.join(map(str, spilled))} bytes "
              f"spilled, {written:.2f} s to write, {max(seconds):.2f} s to compile")


@needs_nvrtc
@pytest.mark.nightly
@pytest.mark.parametrize("name", DTYPES)
def test_nvrtc_says_nothing_of_any_dtype(name):
    for op in ("sum", "prod", "min", "max", "band", "bor", "bxor"):
        for capability in ARCHITECTURES if defined(op, name) else ():
            require_quiet(kernel(shipped("allreduce/ring.sched", "ring", 8), dtype=named(name), op=op).text, capability)
            if name != "bool":
                require_quiet(streams.combining(name, op), capability)


def by_nvcc(source, capability, folder):
    file = folder / "schedule.cu"
    file.write_text(source)
    done = subprocess.run([nvcc(), "-std=c++17", "-Werror", "all-warnings", "-Xptxas", "-v", "-cubin",
                           f"-arch=sm_{capability}", "-o", str(folder / "schedule.cubin"), str(file)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert reported(done.stderr)[1] <= SPILLED


def test_blocks_are_as_large_as_kernels_are_compiled_for():
    assert f"constexpr int MOST_THREADS = {THREADS};" in copied("lane.cuh")


@needs_nvcc
def test_nvcc_says_nothing(tmp_path):
    by_nvcc(kernel(shipped("allreduce/ring.sched", "ring", 8), dtype=named("float16"), op=None).text, 90, tmp_path)


@needs_nvcc
@pytest.mark.nightly
@pytest.mark.parametrize("path,name", SCHEDULES, ids=[f"{p}::{n}" for p, n in SCHEDULES])
def test_nvcc_says_nothing_of_any_schedule(path, name, tmp_path):
    for capability in ARCHITECTURES:
        by_nvcc(kernel(at_8_ranks(path, name), dtype=named("float32"), op=None).text, capability, tmp_path)


@needs_nvrtc
def test_what_nvrtc_refuses():
    with pytest.raises(SchedError) as refused:
        compiler.compiled("this is no source", 90)
    [finding] = refused.value.diagnostics
    assert finding.code == "SL804" and "cannot compile the schedule with --gpu-architecture=sm_90" in finding.message
    assert "error" in finding.notes[0].message


@needs_nvrtc
def test_what_real_nvrtc_makes_for_gpus_that_it_does_not_know(tmp_path, monkeypatch):
    """Later ones get PTX of the last that it knows; earlier ones are refused."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = 'extern "C" __global__ void nothing() {}'
    assert compiler.compiled(source, 999).image.lstrip().startswith(b"//")
    assert compiler.compiled(source, 90).image[:4] == b"\x7fELF"
    with pytest.raises(SchedError, match="does not know this GPU, which is sm_20"):
        compiler.compiled(source, 20)


@needs_nvrtc
def test_without_a_gpu_one_sentence_says_so(call):
    if CupyBackend().available() is None:
        pytest.skip("there is a GPU")
    status, out, err = call("run", str(EXAMPLES / "allreduce" / "ring.sched"), "--ranks", "4", "--backend", "cupy")
    assert status == 2 and not out and err.count("\n") == 2
    assert err.startswith("error[SL804] no-backend: the back end cupy cannot run here: there is no ")
