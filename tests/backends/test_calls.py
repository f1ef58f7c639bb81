"""Calling a schedule with the arrays people have."""

import subprocess
import sys
import types

import numpy as np
import pytest

import schedlang
from schedlang import SchedError, Schedule
from schedlang.backends.numpy import NumpyBackend
from schedlang.ir import json
from schedlang.ir.build import table_from_rows
from schedlang.ir.table import Buffer, Collective
from schedlang.verify.sends import Sends
from tests import tables
from tests.backends.test_reference import of


def direct(name: str, ranks: int = 2, **arguments) -> Schedule:
    """A schedule for a blocked collective, out of place: every rank sends its blocks straight to where they belong."""
    table = of(name, ranks, inplace=False, **arguments)
    size = {b.name: b.chunks for b in table.buffers}
    root, rows = arguments.get("root"), []
    for s in range(ranks):
        for d in range(ranks):
            if (name == "gather" and d != root) or (name == "scatter" and s != root):
                continue
            source = {"buffer": "input", "chunk": d if size["input"] > 1 else 0}
            target = {"buffer": "output", "chunk": s if size["output"] > 1 else 0}
            if s == d:
                rows.append({"op": "copy", "rank": s, **target, "from_buffer": "input", "from_chunk": source["chunk"]})
            else:
                rows.append({"op": "send", "rank": s, "peer": d, **source})
                rows.append({"op": "recv", "rank": d, "peer": s, **target})
    return Schedule(table_from_rows(rows, ranks=ranks, chunks=ranks, collective=table.collective,
                                    buffers=table.buffers))


def broken_ring() -> Schedule:
    """A ring that never hands the last chunk on."""
    rows = [{"op": "send", "rank": 0, "peer": 1, "buffer": "data", "chunk": 0},
            {"op": "reduce_recv", "rank": 1, "peer": 0, "buffer": "data", "chunk": 0}]
    return Schedule(tables.allreduce(rows, 2))


RING = Schedule(tables.ring(3))


def code_of(call) -> str:
    with pytest.raises(SchedError) as refused:
        call()
    return refused.value.diagnostics[0].code


def test_lists_give_lists_and_stacks_give_stacks():
    stack = np.arange(12.0).reshape(3, 2, 2)
    as_list = RING(list(stack))
    assert isinstance(as_list, list) and all(np.array_equal(a, stack.sum(0)) for a in as_list)
    stacked = RING(stack)
    assert stacked.shape == (3, 2, 2) and np.array_equal(stacked[2], stack.sum(0))
    assert np.array_equal(stack, np.arange(12.0).reshape(3, 2, 2)), "inputs are unchanged"


@pytest.mark.parametrize("shape", [(), (1,), (0,), (10,), (3, 0, 2), (2, 3, 5)])
def test_any_shape_keeps_its_shape(shape):
    inputs = [np.full(shape, r + 1, np.int32) for r in range(3)]
    for result in RING(inputs):
        assert result.shape == shape and result.dtype == np.int32 and (result == 6).all()


def test_arrays_need_not_be_contiguous():
    base = np.arange(3 * 40).reshape(3, 8, 5)
    inputs = [base[r, ::2].T for r in range(3)]
    result = RING(inputs)[1]
    assert result.shape == (5, 4) and np.array_equal(result, base[:, ::2].sum(0).T)
    assert np.array_equal(RING([base[r, ::-1] for r in range(3)])[0], base.sum(0)[::-1])


def test_operators_and_back_ends():
    inputs = [np.array([3, 5]), np.array([4, -1]), np.array([1, 1])]
    assert RING(inputs, op="max")[0].tolist() == [4, 5]
    assert RING.with_op("min")(inputs)[0].tolist() == [1, -1]
    assert RING(inputs, backend="interpret")[2].tolist() == [8, 5]
    assert code_of(lambda: RING(inputs, op="mean")) == "SL806"
    assert code_of(lambda: RING(inputs, op=["sum"])) == "SL806"
    for nothing in ("nothing", None, object(), NumpyBackend):
        assert code_of(lambda nothing=nothing: RING(inputs, backend=nothing)) == "SL804"
    assert RING(inputs, backend=NumpyBackend())[2].tolist() == [8, 5]
    assert code_of(lambda: direct("allgather").with_op("sum")) == "SL806"


def test_accumulators_are_named_or_numpys():
    inputs = [np.full(2, 0.1, np.float32)] * 3
    wide = RING(inputs, accumulate="float64")[0]
    assert RING(inputs, accumulate=np.dtype("float64"))[0].tobytes() == wide.tobytes()
    for nothing in (np.float64, 64, "float"):
        assert code_of(lambda nothing=nothing: RING(inputs, accumulate=nothing)) == "SL803"


def test_models_of_sends_are_written_as_on_the_command_line():
    assert RING.verify(sends="rendezvous").sends == Sends.parse("rendezvous")
    assert RING.verify(sends=Sends.parse("buffered=2")).ok and RING.verify(require_agreement=True).ok
    assert RING.verify() is RING.verify(sends="default")
    assert code_of(lambda: RING.verify(sends="buffered")) == "SL806"


def test_blocks_lie_along_the_first_dimension():
    a, b = np.arange(8).reshape(4, 2), np.arange(8).reshape(4, 2) + 100
    gathered = direct("allgather")([a, b])
    assert all(np.array_equal(g, np.concatenate([a, b])) for g in gathered)
    exchanged = direct("alltoall")([a, b])
    assert np.array_equal(exchanged[1], np.concatenate([a[2:], b[2:]]))
    scattered = direct("scatter", root=1)([None, a])
    assert np.array_equal(scattered[0], a[:2]) and np.array_equal(scattered[1], a[2:])
    at_root = direct("gather", root=0)([a, b])
    assert np.array_equal(at_root[0], np.concatenate([a, b])) and at_root[1] is None
    assert direct("allgather")([np.float32(1), np.float32(2)])[0].tolist() == [1, 2]
    assert code_of(lambda: direct("alltoall")([a[:3], b[:3]])) == "SL802"
    assert code_of(lambda: direct("alltoall")([np.float32(1), np.float32(2)])) == "SL802"


def test_counts_are_of_elements():
    exchange = direct("alltoallv", counts=np.array([[1, 2], [0, 3]]))
    first, second = exchange([np.array([1, 2, 3]), np.array([4, 5, 6])])
    assert first.tolist() == [1] and second.tolist() == [2, 3, 4, 5, 6]
    assert code_of(lambda: exchange([np.array([1, 2]), np.array([4, 5, 6])])) == "SL802"
    assert code_of(lambda: exchange([np.ones((3, 1)), np.ones((3, 1))])) == "SL801"


def test_custom_takes_and_gives_dicts_where_there_are_several_buffers():
    rows = [{"op": "copy", "rank": 0, "buffer": "data", "chunk": 0, "from_buffer": "input", "from_chunk": 0}]
    table = table_from_rows(rows, ranks=1, collective=Collective("custom"),
                            buffers=[Buffer("input", 1, role="input"), Buffer("data", 1, role="data")])
    schedule = Schedule(table)
    assert code_of(lambda: schedule([np.ones(2)], verify=False)) == "SL801"
    schedule([{"input": np.ones(2), "data": np.zeros(2)}], verify=False)
    assert code_of(lambda: schedule([{"input": np.ones(2)}], verify=False)) == "SL801"


@pytest.mark.parametrize("inputs,code,words", [
    ([np.ones(3), np.ones(3), np.ones(4)], "SL801", "rank 2 has shape (4,)"),
    ([np.ones(3), np.ones(3, np.float32), np.ones(3)], "SL803", "rank 1 is float32"),
    ([np.ones(3), None, np.ones(3)], "SL801", "rank 1 has no input"),
    ([np.ones(3)] * 2, "SL801", "inputs for 2"),
    (np.ones((2, 3)), "SL801", "inputs for 2"),
    (np.float64(1), "SL801", "no dimension to tell ranks apart"),
    ([[1, 2]] * 3, "SL801", "rank 0 is a list"),
    ("abc", "SL801", "of the type str"),
    (5, "SL801", "of the type int"),
    (None, "SL801", "is called without inputs"),
    ([np.ones(3, complex)] * 3, "SL803", "rank 0: schedules do not run on arrays of dtype complex128"),
    ([np.ones(3, ">f4")] * 3, "SL803", ">f4"),
    ([np.array(["a"])] * 3, "SL803", "dtype <U1"),
    ([np.array([object()])] * 3, "SL803", "dtype object"),
    ([np.ma.masked_array([1, 2], [False, True])] * 3, "SL801", "rank 0: a masked array"),
])
def test_arrays_that_do_not_fit_are_refused_by_rank(inputs, code, words):
    with pytest.raises(SchedError) as refused:
        RING(inputs)
    finding = refused.value.diagnostics[0]
    assert finding.code == code and words in finding.message and finding.help


def test_a_faulty_schedule_is_refused_unless_asked_for():
    schedule, inputs = broken_ring(), [np.ones(2), np.ones(2)]
    assert not schedule.verify().ok
    assert code_of(lambda: schedule(inputs)) == "SL501"
    assert [r.tolist() for r in schedule(inputs, verify=False)] == [[1, 1], [2, 2]]


def test_a_barrier_takes_nothing():
    token = Buffer("data", 1, role="data")
    rows = [{"op": op, "rank": r, "peer": 1 - r, "buffer": "data", "chunk": 0}
            for r in (0, 1) for op in ("send", "recv")]
    meet = Schedule(table_from_rows(rows, ranks=2, collective=Collective("barrier"), buffers=[token]))
    assert meet() == [None, None] and meet([None, None]) == [None, None]
    assert code_of(lambda: meet([np.ones(1), np.ones(1)])) == "SL801"


def test_any_dlpack_array_is_taken():
    class Foreign:
        """An array of a library nobody has heard of."""

        def __init__(self, values):
            self.values = values

        def __dlpack__(self, **options):
            return self.values.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.values.__dlpack_device__()

    results = RING([Foreign(np.full(4, r, np.float32)) for r in range(3)])
    assert results[0].tolist() == [3, 3, 3, 3]


def test_arrays_that_cannot_be_read_are_refused():
    class Closed:
        def __dlpack__(self, **_):
            raise ValueError("not today")

        def __dlpack_device__(self):
            return 1, 0

        def __array__(self, *_, **__):
            raise ValueError("nor so")

    assert code_of(lambda: RING([Closed()] * 3)) == "SL801"
    assert code_of(lambda: RING(Closed())) == "SL801"


def test_results_go_back_to_the_library_and_device_they_came_from(monkeypatch):
    """CuPy stood in for: arrays on a device that NumPy cannot touch."""
    entered = []

    class Device:
        id = 3

        def __enter__(self):
            entered.append(self)

        def __exit__(self, *_):
            pass

    class DeviceArray:
        device = Device()

        def __init__(self, values):
            self.hidden, self.shape, self.dtype = np.array(values), np.shape(values), np.asarray(values).dtype

        def __getitem__(self, index):
            return DeviceArray(self.hidden[index])

        def __dlpack__(self, **_):
            raise BufferError("this memory is on a device")

        def get(self):
            return self.hidden.copy()

    cupy = types.ModuleType("cupy")
    cupy.ndarray, cupy.asarray = DeviceArray, DeviceArray
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    results = RING([DeviceArray(np.full((2, 2), r, np.float16)) for r in range(3)])
    assert all(isinstance(r, DeviceArray) for r in results) and results[0].hidden.tolist() == [[3, 3], [3, 3]]
    assert results[0].dtype == np.float16 and len(entered) == 3
    stacked = RING(DeviceArray(np.ones((3, 4))))
    assert isinstance(stacked, DeviceArray) and stacked.hidden.tolist() == 3 * [[3, 3, 3, 3]]
    assert code_of(lambda: RING([DeviceArray(np.ones(2)), np.ones(2), np.ones(2)])) == "SL801"


def test_the_array_api_takes_results_back():
    class Namespace:
        @staticmethod
        def asarray(values, device=None):
            return Standard(values, device)

    class Standard:
        def __init__(self, values, device):
            self.values, self.device = np.asarray(values), device

        def __array_namespace__(self):
            return Namespace

        def __dlpack__(self, **options):
            return self.values.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.values.__dlpack_device__()

    results = RING([Standard(np.full(2, r), "here") for r in range(3)])
    assert all(isinstance(r, Standard) and r.device == "here" for r in results) and results[1].values.tolist() == [3, 3]


# ---- loading -------------------------------------------------------------------------------------------------------


PAIRS = """
schedule pair(ranks, k=1):
    collective broadcast(root=0)
    chunks k
    verify ranks in [2]
    for r in 1..ranks:
        send data[0:k] from 0 to r

schedule two(nodes):
    ranks 2 * nodes
    collective broadcast(root=0)
    verify nodes in 1..4
    for r in 1..ranks:
        send data[0] from 0 to r
"""


def test_load_by_name_size_and_parameters(tmp_path):
    file = tmp_path / "pair.sched"
    file.write_text(PAIRS, encoding="utf-8")
    pair = schedlang.load(file, ranks=3, k=2)
    assert (pair.name, pair.ranks, pair.params["k"], pair.collective.name) == ("pair", 3, 2, "broadcast")
    assert pair([np.arange(3), None, None])[2].tolist() == [0, 1, 2]
    assert schedlang.load(f"{file}::two", ranks=4).params["nodes"] == 2
    assert schedlang.load(f"{file}::two", nodes=3).ranks == 6
    assert code_of(lambda: schedlang.load(f"{file}::two", ranks=5)) in ("SL206", "SL207")
    assert code_of(lambda: schedlang.load(f"{file}::three", ranks=5)) == "SL212"
    assert code_of(lambda: schedlang.load(tmp_path / "none.sched")) == "SL105"
    assert code_of(lambda: schedlang.load(file)) == "SL206"


def test_load_tables(tmp_path):
    file = tmp_path / "ring.json"
    file.write_text(json.dumps(tables.ring(3)), encoding="utf-8")
    ring = schedlang.load(file)
    assert ring([np.ones(2)] * 3)[0].tolist() == [3, 3]
    assert schedlang.load(f"{file}::ring", ranks=3).ranks == 3
    assert code_of(lambda: schedlang.load(file, ranks=4)) == "SL206"
    assert code_of(lambda: schedlang.load(file, channels=4)) == "SL206"
    assert code_of(lambda: schedlang.load(f"{file}::chain")) == "SL212"
    file.write_text("{", encoding="utf-8")
    assert code_of(lambda: schedlang.load(file)) == "SL107"


def test_importing_schedlang_imports_nothing_heavy():
    program = ("import sys, schedlang; dir(schedlang); "
               "assert not {'numpy', 'torch', 'cupy', 'rich', 'lark', 'click'} & set(sys.modules); "
               "schedlang.load; assert not {'torch', 'cupy', 'rich', 'lark'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", program], check=True)


# ---- torch ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64",
                                  "uint8"])
def test_torch_tensors(name):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    inputs = [(torch.arange(10).reshape(2, 5) * (r + 1)).to(dtype) for r in range(3)]
    results = RING(inputs)
    assert all(r.dtype == dtype and r.shape == (2, 5) and r.device == inputs[0].device for r in results)
    assert all(torch.equal(r, (torch.arange(10).reshape(2, 5) * 6).to(dtype)) for r in results)
    assert torch.equal(RING(torch.stack(inputs)), torch.stack(results))
    for shape in ((), (0,), (0, 3), (1, 1)):
        small = RING([torch.ones(shape, dtype=dtype)] * 3)
        assert all(r.shape == shape and r.dtype == dtype and (r == 3).all() for r in small)
    transposed = RING([x.T for x in inputs])[0]
    assert torch.equal(transposed, results[0].T)


def test_torch_bfloat16_rounds_as_torch_does():
    torch = pytest.importorskip("torch")
    inputs = [torch.randn(1000, generator=torch.Generator().manual_seed(r)).bfloat16() for r in range(2)]
    assert torch.equal(Schedule(tables.ring(2))(inputs)[0], inputs[0] + inputs[1])


def test_gradients_are_not_followed():
    torch = pytest.importorskip("torch")
    inputs = [torch.ones(3, requires_grad=True) for _ in range(3)]
    results = RING(inputs)
    assert not any(r.requires_grad for r in results) and inputs[0].grad is None


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_without_elements_in_memory_are_refused():
    torch = pytest.importorskip("torch")
    for odd in (torch.ones(3).to_sparse(), torch.ones(3, device="meta")):
        assert code_of(lambda odd=odd: RING([odd] * 3)) == "SL801"
    assert code_of(lambda: RING(torch.nested.nested_tensor([torch.ones(3)] * 3))) == "SL801"
    assert code_of(lambda: RING([torch.ones(3, dtype=torch.complex64)] * 3)) == "SL803"
    assert code_of(lambda: RING([np.ones(3), np.ones(3), torch.ones(3, dtype=torch.float64)])) == "SL801"
