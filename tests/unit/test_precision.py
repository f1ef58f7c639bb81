"""``verify --dtype``: what it says of sums and products, to the bit what the interpreter makes of such inputs."""

import itertools
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import schedlang
from schedlang.cli.main import main
from schedlang.diagnostics import SchedError, Severity
from schedlang.expand import expand, load_text
from schedlang.interpret import interpret
from schedlang.ir.table import OpTable
from schedlang.render.json import diagnostic, plain
from schedlang.render.terminal import render
from schedlang.render.verdict import facts_text
from schedlang.running.dtypes import DTYPES
from schedlang.verify import matching, verify
from schedlang.verify.arithmetic import Arithmetic, _root
from schedlang.verify.precision import Precision
from schedlang.verify.steps import steps
from schedlang.verify.timing.order import order
from schedlang.verify.values.carriers import carriers
from schedlang.verify.values.conditions import conditions
from schedlang.verify.values.shapes import Shapes
from schedlang.verify.values.walk import Program

EXAMPLES = Path(__file__).parents[2] / "examples"
GOLDEN = Path(__file__).parents[1] / "golden" / "verdicts" / "precision.txt"
BF16, FP16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
CHAIN = """schedule chain(ranks):
    collective allreduce(sum)
    for r in 0..ranks - 1:
        reduce data[0] from r to r + 1
    for r in 0..ranks - 1:
        send data[0] from ranks - 1 to r
"""
REDUCING = {
    "allreduce/ring.sched": [(2, {}), (7, {"channels": 2}), (13, {"channels": 1})],
    "allreduce/halving_doubling.sched": [(16, {})],
    "allreduce/recursive_doubling.sched": [(11, {}), (37, {})],
    "allreduce/all_pairs.sched": [(5, {})],
    "reduce_scatter/ring.sched": [(9, {}), (9, {"inplace": True})],
    "custom/scan.sched": [(13, {})],
}


def chain(ranks: int) -> OpTable:
    return expand(load_text(CHAIN), "chain", ranks=ranks)[0]


def precision(table: OpTable, dtype: str, accumulate: str | None = None, op: str | None = None) -> Precision:
    if op is not None:
        table = schedlang.Schedule(table).with_op(op).table
    matched = matching.match(table)
    before = conditions(table)
    c = carriers(table, matched, order(table, matched), before.locations, steps(table, matched.lanes, before))
    return Precision(table, Program.of(c), before, Arithmetic.of(dtype, accumulate))


def executed(of: Precision, value: float, accumulate: str | None) -> np.ndarray:
    """The results that the interpreter makes where all inputs are the value, in the order of the conditions."""
    table, places, dtype = of.table, of.conditions.locations, of.arithmetic.dtype.numpy
    lengths: dict[tuple[int, int], int] = {}
    for at in of.conditions.initial_at:
        buffer, rank, _ = places.where(int(at))
        lengths[rank, buffer] = lengths.get((rank, buffer), 0) + 1
    inputs = [{table.buffers[b].name: np.full(n, value, dtype) for (r, b), n in lengths.items() if r == rank}
              for rank in range(table.ranks)]
    outputs = interpret(table, inputs, accumulate=accumulate, clocks=False).outputs
    found = []
    first = {(r, b): min(int(c) for at in of.conditions.results for bb, rr, c in [places.where(int(at))]
                         if (rr, bb) == (r, b)) for r in range(table.ranks) for b in range(len(table.buffers))
             if any(places.where(int(at))[:2] == (b, r) for at in of.conditions.results)}
    for at in of.conditions.results:
        buffer, rank, chunk = places.where(int(at))
        offset = 0 if table.collective.name == "custom" else first[rank, buffer]
        found.append(outputs[rank][table.buffers[buffer].name][chunk - offset])
    return np.array(found)


CASES = [(file, ranks, params) for file, worlds in REDUCING.items() for ranks, params in worlds]


@pytest.mark.parametrize(("file", "ranks", "params"), CASES)
@pytest.mark.parametrize("op", ["sum", "avg", "prod"])
def test_the_values_are_those_that_the_interpreter_makes(file, ranks, params, op):
    table = schedlang.load(EXAMPLES / file, ranks=ranks, **params).table
    for dtype, accumulate in [("float16", None), ("bfloat16", None), ("bfloat16", "float32"), ("float32", None),
                              ("int8", None), ("uint16", None), ("int64", None)]:
        of = precision(table, dtype, accumulate, op)
        for value in (1, 3, 117) if dtype[0] in "iu" else (1.0, 1.2, 3.0, 250.0):
            got, due = of.results(value), executed(of, value, accumulate)
            assert got.dtype == due.dtype == DTYPES[dtype].numpy
            assert got.tobytes() == due.tobytes(), (dtype, accumulate, value)


@pytest.mark.parametrize(("file", "ranks", "params"), CASES)
@pytest.mark.parametrize("op", ["sum", "avg", "prod"])
@pytest.mark.parametrize(("dtype", "accumulate"), [("float16", None), ("bfloat16", None), ("float64", None),
                                                   ("float16", "float32")])
def test_the_largest_input_is_the_last_that_stays_finite(file, ranks, params, op, dtype, accumulate):
    of = precision(schedlang.load(EXAMPLES / file, ranks=ranks, **params).table, dtype, accumulate, op)
    largest = of.arithmetic.largest(of.shapes, of.which, op)
    assert np.isfinite(of.results(largest).astype(float)).all()
    more = of.arithmetic.next_larger(largest)
    assert (more is None) == (float(largest) == of.arithmetic.dtype.largest)
    assert more is None or not np.isfinite(of.results(more).astype(float)).all()


def test_no_mixture_of_smaller_inputs_overflows():
    """All combinations of a few inputs up to the bound, on three ranks."""
    of = precision(chain(3), "float16")
    largest = of.arithmetic.largest(of.shapes, of.which, "sum")
    values = [largest, -largest, np.nextafter(largest, FP16.type(0)), FP16.type(1), FP16.type(0)]
    for a, b, c in itertools.product(values, repeat=3):
        assert np.isfinite((a + b) + c)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("kind", "iu")
@pytest.mark.parametrize(("op", "ranks"), [("sum", 3), ("sum", 200), ("avg", 7), ("prod", 5), ("prod", 200)])
def test_integers_up_to_the_bound_do_not_wrap(kind, bits, op, ranks):
    limit = 2 ** (bits - (kind == "i")) - 1
    of = precision(chain(ranks), f"{'u' * (kind == 'u')}int{bits}", op=op)
    largest = int(of.arithmetic.largest(of.shapes, of.which, op))
    exact = (lambda x: x**ranks) if op == "prod" else (lambda x: x * ranks)
    assert exact(largest) <= limit < exact(largest + 1)
    assert of.facts["largest_input"] == largest


def test_float16_over_1024_ranks():
    """64.0 x 1,024 is 65,536, and float16 ends at 65,504 = 63.97 x 1,024."""
    verdict = verify(chain(1024), dtype="float16")
    (found,) = (d for d in verdict.diagnostics if d.code == "SL613")
    assert found.severity == Severity.WARNING and verdict.ok
    assert "a sum of 1,024 contributions overflows float16 with inputs of 64 and more" in found.message
    assert "64 on every rank gives inf" in found.message and "with inputs up to 63.97 it cannot" in found.message
    assert verdict.facts["largest_input"] == 63.97 and FP16.type(63.97) * 1024 == 65504
    assert found.witness == {"dtype": "float16", "largest_input": 63.97, "contributions": 1024, "place": [0, 0, 0]}
    assert verdict.facts["ones"] == verdict.facts["ones_due"] == 1024
    assert [d.code for d in verdict.diagnostics if d.code == "SL614"] == []


def test_integers_that_a_float_holds_are_told_exactly():
    """Not 32,750 and 32,770, as float16 writes them for short."""
    verdict = verify(chain(2), dtype="float16")
    assert verdict.facts["largest_input"] == 32752 and verdict.diagnostics == verify(chain(2)).diagnostics
    assert "in float16: inputs up to 32,752 cannot overflow; ones give 2" in facts_text(verdict.facts)


def test_a_ring_of_ones_over_1024_ranks_stalls_in_bfloat16_at_256():
    verdict = verify(chain(1024), dtype="bfloat16")
    (found,) = (d for d in verdict.diagnostics if d.severity == Severity.WARNING)
    assert found.code == "SL614" and "the sum of 1,024 ones is 256 in data[0] on rank" in found.message
    assert "256 of them make as much already" in found.notes[0].message and found.count == 1024
    assert "`run --accumulate float32`" in found.help
    assert (verdict.facts["ones"], verdict.facts["ones_due"]) == (256, 1024)
    wide = verify(chain(1024), dtype="bfloat16", accumulate="float32")
    assert wide.facts["ones"] == 1024 and not [d for d in wide.diagnostics if d.severity == Severity.WARNING]


def test_halving_doubling_keeps_all_ones():
    schedule = schedlang.load(EXAMPLES / "allreduce/halving_doubling.sched", ranks=512)
    verdict = schedule.verify(dtype="bfloat16")
    assert verdict.facts["ones"] == 512 and not [d for d in verdict.diagnostics if d.code in ("SL613", "SL614")]


@pytest.mark.parametrize(("ranks", "stalls"), [(2048, False), (2050, False), (2100, True)])
def test_float16_stalls_at_2048_in_a_chain(ranks, stalls):
    verdict = verify(chain(ranks), dtype="float16")
    assert verdict.facts["ones"] == 2048
    assert ("SL614" in {d.code for d in verdict.diagnostics}) == stalls


@pytest.mark.parametrize(("dtype", "ranks", "severity"), [
    ("float16", 8, None), ("float16", 255, None), ("float16", 256, Severity.WARNING),
    ("int8", 2, Severity.WARNING), ("int16", 100, None), ("float32", 100, None), ("int32", 100, None),
    ("bfloat16", 100, None), ("float64", 3, None)])
def test_what_is_said_of_the_range(dtype, ranks, severity):
    verdict = verify(chain(ranks), dtype=dtype)
    assert [d.severity for d in verdict.diagnostics if d.code == "SL613"] == ([] if severity is None else [severity])
    assert verdict.facts["dtype"] == dtype and verdict.facts["largest_input"] > 0


def test_integers_that_overflow_with_ones():
    (found,) = (d for d in verify(chain(200), dtype="int8").diagnostics if d.code == "SL613")
    assert "with all inputs but 0: 1 on every rank gives -56" in found.message and "only 0 is safe" in found.message


@pytest.mark.parametrize("op", ["min", "max", "band"])
def test_operators_that_neither_grow_nor_round_are_called_that(op):
    schedule = schedlang.Schedule(chain(4)).with_op(op)
    verdict = schedule.verify(dtype="float16" if op != "band" else "int8")
    assert verdict.diagnostics == schedule.verify().diagnostics and nothing_added(verdict)


def nothing_added(verdict):
    (said,) = (line for line in facts_text(verdict.facts) if line.startswith("in "))
    return said == f"in {verdict.facts['dtype']}: nothing is added up, so nothing overflows or is rounded"


@pytest.mark.parametrize("file", ["allgather/ring", "broadcast/binomial", "barrier/dissemination"])
def test_what_adds_nothing_is_called_that(file):
    verdict = schedlang.load(EXAMPLES / f"{file}.sched", ranks=4).verify(dtype="int8")
    assert nothing_added(verdict) and verdict.ok and verdict.facts["dtype"] == "int8"


def test_nothing_is_said_of_what_is_not_right():
    wrong = expand(load_text(CHAIN.replace("0..ranks - 1:\n        reduce", "1..ranks - 1:\n        reduce")), "chain",
                   ranks=4)[0]
    verdict = verify(wrong, dtype="float16")
    assert not verdict.ok and "dtype" not in verdict.facts


def test_one_rank_adds_nothing():
    verdict = verify(chain(1), dtype="float16")
    assert verdict.ok and nothing_added(verdict)
    assert not [d for d in verdict.diagnostics if d.code in ("SL613", "SL614")]


@pytest.mark.parametrize(("dtype", "accumulate", "words"), [
    ("float8", None, "float8 is no dtype"), ("bool", None, "no sums of bool"),
    ("int8", "float32", "cannot be accumulated"), (None, "float32", "beside a dtype")])
def test_dtypes_that_cannot_be_used(dtype, accumulate, words):
    with pytest.raises(SchedError, match=words):
        verify(chain(2), dtype=dtype, accumulate=accumulate)


def test_on_the_command_line(tmp_path, capsys):
    path = tmp_path / "chain.sched"
    path.write_text(CHAIN)
    assert main(["verify", str(path), "--ranks", "300", "--dtype", "bf16"]) == 0
    said = capsys.readouterr().out
    assert "warning[SL614] stalled-sum" in said and "ones give 256 instead of 300" in said
    assert main(["verify", str(path), "--ranks", "300", "--dtype", "bf16", "--accumulate", "float32"]) == 0
    assert "in bfloat16, held in float32 meanwhile: inputs up to" in capsys.readouterr().out
    assert main(["verify", str(path), "--ranks", "4", "--dtype", "int8", "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)["schedules"][0]["cases"][0]["facts"]
    assert (facts["dtype"], facts["largest_input"]) == ("int8", 31)
    for wrong in (["--dtype", "float8"], ["--accumulate", "float32"], ["--dtype", "int8", "--accumulate", "float32"]):
        assert main(["verify", str(path), *wrong]) == 2
        assert "error[SL80" in capsys.readouterr().err


def test_of_several_sizes_the_largest_tells(tmp_path, capsys):
    """Finding and facts are of one case, wherever the examples of the others stand."""
    path = tmp_path / "ring.sched"
    path.write_text((EXAMPLES / "allreduce/ring.sched").read_text())
    assert main(["verify", str(path), "--ranks", "2..8", "-p", "channels=1", "--dtype", "int8"]) == 0
    said = capsys.readouterr().out
    assert said.count("warning[SL613]") == 1 and "a sum of 7 contributions overflows int8 with inputs of 19" in said
    assert "    with ranks 7, channels 1:\n" in said and "in int8: inputs up to 18 cannot overflow" in said
    chain_path = tmp_path / "chain.sched"
    chain_path.write_text(CHAIN)
    assert main(["verify", str(chain_path), "--ranks", "200,300,250", "--dtype", "float16", "--format", "github"]) == 0
    (found,) = (line for line in capsys.readouterr().out.splitlines() if "SL613" in line)
    assert "a sum of 300 contributions" in found and "in chain with ranks 300" in found


def test_large_integers_are_written_alike_in_findings_and_facts():
    facts = {"dtype": "int64", "largest_input": (1 << 63) // 8 - 1, "ones": 8, "ones_due": 8}
    assert list(facts_text(facts)) == ["in int64: inputs up to 1,152,921,504,606,846,975 cannot overflow; ones give 8"]


def test_an_average_is_divided_in_the_dtype_that_holds_the_sum():
    """By as many ranks as the dtype can write: 257 is 256 in bfloat16."""
    of = precision(chain(257), "bfloat16", op="avg")
    assert of.results(1.0).tobytes() == executed(of, 1.0, None).tobytes()
    assert of.results(1.0).astype(float).tolist() == [1] * 257


def test_integers_are_divided_exactly_toward_zero():
    values = [7, -7, 0, 2**62 + 1, -(2**62 + 1), -(2**63)]
    for terms in (1, 2, 3):
        found = Arithmetic.of("int64")._divided(np.array(values), terms)
        assert found.tolist() == [abs(v) // terms * (1 if v >= 0 else -1) for v in values]


def test_roots():
    for limit in [*range(1, 40), 127, 255, 32767, 2**63 - 1, 2**64 - 1]:
        for degree in (1, 2, 3, 5, 64, 200):
            root = _root(limit, degree)
            assert root**degree <= limit < (root + 1)**degree


def test_what_is_lost_is_lost_beside_the_larger_sum():
    """1,024 ones as a balanced tree, and three more that were added up later: 1,027 is 1,024 in bfloat16."""
    tree = """schedule tree(ranks):
    collective reduce(sum, 0)
    buffer late[1]
    for k in 0..10:
        for r in 0..1024 // (2 << k): reduce data[0] from (r * 2 + 1) << k to (r * 2) << k
    send data[0] from 0 to 1024 into late[0]
    reduce data[0] from 1025 to 1024
    reduce data[0] from 1026 to 1024
    reduce data[0] from 1024 to 0
"""
    of = precision(expand(load_text(tree), "tree", ranks=1027)[0], "bfloat16")
    assert of.results(1.0).astype(float).tolist() == [1024] and of._reached(int(of.which[0])) == 1024


@pytest.mark.parametrize(("dtype", "op", "accumulate", "helps"), [
    ("float16", "sum", None, "bfloat16, float32"),
    ("float16", "avg", None, "bfloat16, float32; `run --accumulate float32` divides before it rounds to float16"),
    ("float16", "avg", "float32", None),
    ("int8", "sum", None, "a wider integer"),
    ("bfloat16", "prod", None, "float64"),
    ("float32", "prod", None, "float64"),
])
def test_where_more_range_is_to_be_had(dtype, op, accumulate, helps):
    verdict = schedlang.Schedule(chain(300)).with_op(op).verify(dtype=dtype, accumulate=accumulate)
    said = [d.help for d in verdict.diagnostics if d.code == "SL613"]
    first = "scale the inputs down first, or use a dtype of more range: "
    assert said == ([] if helps is None else [first + helps])


LOPSIDED = """schedule lopsided(ranks):
    collective reduce(sum, 0)
    chunks 3
    for r in 0..ranks - 1: reduce data[0] from ranks - 1 - r to ranks - 2 - r
    for r in 1..ranks: reduce data[1:3] from r to 0
"""
UNEQUAL = """schedule unequal(ranks):
    collective custom(sum)
    buffer data[3]
    ensure data[0] on 0 == sum(data[0] on 0..ranks)
    ensure data[1] on 0 == sum(data[1] on 0..3)
    ensure data[2] on 0 == sum(data[2] on 0..ranks)
    for r in 1..ranks:
        reduce data[0] from r to 0
        reduce data[1] from r to 0 if r < 3
        reduce data[2] from r to 0
"""


def test_what_is_said_to_the_letter(update):
    """Findings and facts; `--update` writes golden/verdicts/precision.txt anew."""
    said = []
    few = [("sum", "float16", None), ("sum", "bfloat16", None), ("sum", "int8", None)]
    many = [*few, ("sum", "bfloat16", "float32"), ("sum", "float16", "float32"), ("sum", "uint64", None),
            ("avg", "float16", None), ("avg", "bfloat16", None), ("avg", "int16", None), ("prod", "float32", None),
            ("prod", "int32", None), ("max", "float16", None)]
    for source, ranks, what in ((CHAIN, 3, few), (CHAIN, 300, many), (LOPSIDED, 280, few), (UNEQUAL, 280, few)):
        for op, dtype, accumulate in what:
            table = expand(load_text(source), source.split("(")[0].split()[1], ranks=ranks, params={})[0]
            verdict = schedlang.Schedule(table).with_op(op).verify(dtype=dtype, accumulate=accumulate)
            held = "" if accumulate is None else f", held in {accumulate}"
            said.append(f"== {verdict.table.name}, {ranks} ranks: {op} in {dtype}{held}\n")
            found = [d for d in verdict.diagnostics if d.code >= "SL613"]
            said += [render([d], format="full", color=False, width=120) +
                     f"count {d.count} witness {json.dumps(diagnostic(d)['witness'])}\n" for d in found]
            said += [f"{name} = {json.dumps(plain(verdict.facts[name]))}\n"
                     for name in ("dtype", "accumulate", "largest_input", "ones", "ones_due") if name in verdict.facts]
    if update:
        GOLDEN.write_text("".join(said), encoding="utf-8")
    assert "".join(said) == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize(("dtype", "accumulate", "message", "help"), [
    ("bool", None, "there are no sums of bool, so nothing can be said of them", "choose a floating or integer dtype"),
    (None, "float32", "accumulating in float32 says something only beside a dtype",
     "give the dtype of inputs and results, too")])
def test_what_is_said_of_dtypes_that_say_nothing(dtype, accumulate, message, help):
    with pytest.raises(SchedError) as error:
        verify(chain(2), dtype=dtype, accumulate=accumulate)
    assert [(d.code, d.message, d.help) for d in error.value.diagnostics] == [("SL803", message, help)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_largest_input_of_sums_of_any_length(dtype):
    """Wherever among the numbers that are tried it lies."""
    of = precision(schedlang.load(EXAMPLES / "custom/scan.sched", ranks=90).table, dtype)
    for shape in of.which:
        which = np.array([shape])
        largest = of.arithmetic.largest(of.shapes, which, "sum")
        given = np.array([largest, of.arithmetic.next_larger(largest) or np.inf], of.arithmetic.dtype.numpy)
        found = of.arithmetic.results(of.shapes, which, given, "sum")[0].astype(float)
        assert np.isfinite(found).tolist() == [True, False]


@pytest.mark.parametrize("ordinary", [42, 43])
def test_inputs_of_ordinary_size_are_those_below_the_bound(ordinary, monkeypatch):
    """Of three int8, 42 is the largest input."""
    monkeypatch.setattr("schedlang.verify.precision.ORDINARY", ordinary)
    verdict = verify(chain(3), dtype="int8")
    assert verdict.facts["largest_input"] == 42
    assert [d.code for d in verdict.diagnostics if d.code == "SL613"] == ["SL613"] * (ordinary == 43)


@pytest.mark.parametrize("halves", [False, True])
def test_of_results_that_overflow_the_one_of_fewest_contributions_is_told(halves):
    """A product of 299 numbers, made on the way to one of 300, or after that, which is then of halves; bfloat16 has no
    number between those that make them overflow."""
    source = f"""schedule unequal(ranks):
    collective custom(prod)
    buffer data[2]
    ensure data[0] on 0 == prod(data[0] on 0..299)
    ensure data[1] on 0 == prod(data[1] on 0..300)
    for r in 1..150: reduce data[1] from r to 0
    for r in {150 + halves}..300: reduce data[1] from r to {150 if halves else 0}
""" + "    reduce data[1] from 150 to 0\n" * halves + "    for r in 1..299: reduce data[0] from r to 0\n"

    def product(value: np.generic, terms: int) -> np.generic:
        made = value
        for _ in range(terms - 1):
            made = BF16.type(made * value)
        return made

    with np.errstate(over="ignore"):
        first = next(v for v in np.arange(1, 2, 1 / 128).astype(BF16) if np.isinf(float(product(v, 299))))
        last = BF16.type(float(first) - 1 / 128)
        many = [BF16.type(product(v, 150) * product(v, 150)) if halves else product(v, 300) for v in (last, first)]
        assert [np.isinf(float(value)) for value in (product(last, 299), *many)] == [False, False, True]
    verdict = verify(expand(load_text(source), "unequal", ranks=300)[0], dtype="bfloat16")
    (found,) = (d for d in verdict.diagnostics if d.code == "SL613")
    assert found.message.startswith(f"a product of 299 contributions overflows bfloat16 with inputs of {first:.6g} ")
    assert found.count == 2 and found.witness["place"] == [0, 0, 0] and "in data[0] on rank 0" in found.message


@pytest.mark.parametrize(("exact", "ranks", "pair", "ones", "stalls"), [
    (488, 512, True, 490, True), (492, 513, False, 492, False)])
def test_how_far_off_a_balanced_tree_could_be(exact, ranks, pair, ones, stalls):
    """512 numbers go through 9 additions in a balanced tree, 513 through 10; ones added to a large even number of
    bfloat16 are lost. 22 of 512 are more than (1 + 2^-8)^10 - 1 can be, 21 of 513 less than (1 + 2^-8)^11 - 1."""
    source = f"""schedule late(ranks):
    collective reduce(sum, 0)
    for r in 1..256: reduce data[0] from r to 0
    for r in 257..{exact}: reduce data[0] from r to 256
    reduce data[0] from 256 to 0
    for r in {exact}..ranks - {2 * pair}: reduce data[0] from r to 0
"""
    if pair:
        source += "    reduce data[0] from ranks - 1 to ranks - 2\n    reduce data[0] from ranks - 2 to 0\n"
    assert ((ranks - ones) / ranks > (1 + 2**-8) ** (10 if ranks == 512 else 11) - 1) == stalls
    verdict = verify(expand(load_text(source), "late", ranks=ranks)[0], dtype="bfloat16")
    assert (verdict.facts["ones"], verdict.facts["ones_due"]) == (ones, ranks if ranks == 512 else 512)
    assert ("SL614" in {d.code for d in verdict.diagnostics}) == stalls


def test_what_stalls_in_float32_is_to_be_held_in_float64():
    """2^24 ones as a balanced tree, and 100 more one by one; no table has so many contributions."""
    of = precision(chain(2), "float32")
    of.shapes = shapes = Shapes()
    shape = 0
    for k in range(124):
        shape = shapes._number(shape << 32 | shape if k < 24 else shape)
    of.which = np.array([shape])
    (found,) = of._stalled()
    assert found.message.startswith("in float32 the sum of 16,777,316 ones is 16,777,216 in data[0] on rank ")
    assert found.notes[0].message == "16,777,216 of them make as much already; what is added after that is lost"
    assert found.help == ("add numbers of like size, as halving-doubling and trees do; or hold the sums in a wider "
                          "dtype: `run --accumulate float64`")
