"""Programs: files, imports, names; parameters and the cases that `verify` tries; what a table says of its
collective.
"""

import numpy as np
import pytest

from schedlang.diagnostics import SchedError
from schedlang.expand import Program, cases, constant_value, expand, load_program, load_text
from schedlang.syntax import parse_value

RING = """schedule ring(ranks, channels=1):
    collective allreduce(sum)
    chunks ranks * channels
    for s in 0..ranks - 1:
        step:
            for r in 0..ranks:
                reduce data[(r - s) % ranks] from r to (r + 1) % ranks
"""


def write(folder, **files):
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".sched")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return str(folder / "main.sched")


def codes(raised):
    return [d.code for d in raised.value.diagnostics]


def table_of(text, name="s", **given):
    table, findings = expand(load_text(text, "s.sched"), name, **given)
    assert table is not None, findings
    return table


def only_finding(text, name="s", **given):
    table, findings = expand(load_text(text, "s.sched"), name, **given)
    assert table is None and len(findings) == 1
    return findings[0]


# ---- files ---------------------------------------------------------------------------------------------------------

USER = (
    'import "parts__a.sched"\nschedule main(ranks):\n    collective allreduce(sum)\n'
    "    send data[f(ranks) - ranks] from 0 to 1\n"
)


def test_imports_stand_beside_the_importing_file(tmp_path):
    main = write(
        tmp_path, main=USER.replace("__", "/"), parts__a='import "b.sched"\nfn f(n) = g(n)\n', parts__b="fn g(n) = n\n"
    )
    table, findings = expand(load_program(main), "main", ranks=2)
    assert table is not None and len(table) == 2 and not findings


def test_only_direct_imports_give_names(tmp_path):
    main = write(
        tmp_path,
        main='import "a.sched"\nschedule main(ranks):\n    collective allreduce(sum)\n    chunks g(1)\n',
        a='import "b.sched"\n',
        b="fn g(n) = n\n",
    )
    _, (found,) = expand(load_program(main), "main", ranks=2)
    assert found.code == "SL201" and "`g`" in found.message


def test_a_name_in_two_imports_is_ambiguous(tmp_path):
    main = write(
        tmp_path,
        main='import "a.sched"\nimport "b.sched"\nschedule main(ranks):\n    collective allreduce(sum)\n'
        "    chunks g(1)\n",
        a="fn g(n) = n\n",
        b="fn g(n) = n\n",
    )
    _, (found,) = expand(load_program(main), "main", ranks=2)
    assert found.code == "SL202" and "a.sched" in found.message and "b.sched" in found.message


def test_a_file_imported_by_two_ways_is_one_file(tmp_path):
    main = write(tmp_path, main='import "a.sched"\nimport "b.sched"\nimport "./b.sched"\nschedule main(ranks):\n'
                 "    collective allreduce(sum)\n    chunks g(1)\n", a='import "b.sched"\n', b="fn g(n) = n\n")
    table, _ = expand(load_program(main), "main", ranks=2)
    assert table is not None and table.chunks == 1


def test_circles_of_imports(tmp_path):
    main = write(tmp_path, main='import "a.sched"\n', a='import "main.sched"\n')
    with pytest.raises(SchedError) as why:
        load_program(main)
    assert codes(why) == ["SL106"]
    assert "main.sched imports a.sched imports main.sched" in why.value.diagnostics[0].message


def test_long_chains_of_imports(tmp_path):
    chain = {f"f{i}": f'import "f{i + 1}.sched"\n' for i in range(1200)}
    main = write(tmp_path, **chain, f1200="", main='import "f0.sched"\n')
    with pytest.raises(SchedError) as why:
        load_program(main)
    assert codes(why) == ["SL106"] and "more than 100 deep" in why.value.diagnostics[0].message
    assert load_program(str(tmp_path / "f1150.sched")).names == ()


def test_all_errors_of_all_files(tmp_path):
    main = write(tmp_path, main='import "gone.sched"\nimport "a.sched"\nschedule main(ranks)\n', a="schedule (:\n")
    with pytest.raises(SchedError) as why:
        load_program(main)
    assert {d.location.file.rsplit("/", 1)[-1] for d in why.value.diagnostics} >= {"main.sched"}
    main = write(tmp_path, main='import "gone.sched"\nimport "a.sched"\n')
    with pytest.raises(SchedError) as why:
        load_program(main)
    assert codes(why)[0] == "SL106" and {d.location.line for d in why.value.diagnostics} == {1}
    assert len(codes(why)) > 1


@pytest.mark.parametrize("text", ["fn f(n) = 1\nfn f(n) = 2\n", RING + RING, "fn min(n) = 1\n"])
def test_duplicates(text):
    with pytest.raises(SchedError) as why:
        load_text(text)
    assert codes(why) == ["SL202"]


def test_unreadable(tmp_path):
    with pytest.raises(SchedError) as why:
        load_program(str(tmp_path / "gone.sched"))
    assert codes(why) == ["SL105"]


def test_the_library_is_found_without_import():
    text = "schedule s(ranks):\n    collective allreduce(sum)\n    chunks ranks\n    use halving_doubling()\n"
    assert len(table_of(text, ranks=4)) == 32


def test_a_name_near_one_of_the_library_is_proposed():
    found = only_finding("schedule s(ranks):\n    collective broadcast(0)\n    use binomal_broadcast()\n", ranks=4)
    assert (found.code, found.help) == ("SL201", "did you mean `binomial_broadcast`?")


def test_chunks_that_cannot_be_spread_are_named_with_the_parameters_that_make_them():
    found = only_finding("schedule s(ranks):\n    collective broadcast(0)\n    chunks 4\n    use chain_broadcast()\n",
                         ranks=4)
    assert found.code == "SL210"
    assert "the 8 chunks of `data` of `chain_broadcast` with k = 8, root = 0 cannot be spread" in found.message


def test_own_names_come_before_the_library():
    text = ("schedule s(ranks):\n    collective allreduce(sum)\n    use halving_doubling()\n"
            "schedule halving_doubling(ranks):\n    collective allreduce(sum)\n    send data[0] from 0 to 1\n")
    assert len(table_of(text, ranks=4)) == 2


def test_which_schedule_is_meant(tmp_path):
    other = RING.replace("ring(", "other(")
    assert load_text(RING + other, "ring.sched").main() == "ring"
    assert load_text(RING + other, "x.sched").names == ("ring", "other")
    assert load_text(other, "ring.sched").main() == "other"
    assert load_text(RING + other, "ring.sched").main("other") == "other"
    for program, name in ((load_text(RING + other, "x.sched"), None), (load_text(RING, "ring.sched"), "rng"),
                          (load_text("fn f(x) = x\n"), None)):
        with pytest.raises(SchedError) as why:
            program.main(name)
        assert codes(why) == ["SL212"]
    assert isinstance(load_text(RING), Program)


# ---- parameters ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "words"), [
    ({}, "needs a value for its parameter `ranks`"),
    ({"ranks": 4, "params": {"chanels": 2}}, "channels"),
    ({"ranks": 4, "params": {"channels": [1]}}, "`channels` is an integer"),
    ({"ranks": 4, "params": {"channels": True}}, "`channels` is an integer"),
    ({"ranks": 4, "params": {"channels": 2**63}}, "64 bits"),
    ({"ranks": 4, "params": {"channels": [1, True]}}, "one kind"),
    ({"ranks": 4, "params": {"channels": 1.5}}, "float"),
    ({"ranks": 0}, "at least 1"),
    ({"ranks": 2**31}, "at most"),
    ({"ranks": 4, "params": {"ranks": 5}}, "4 ranks are asked for"),
    ({"ranks": 4, "op": "summ"}, "`sum`"),
])
def test_parameters_that_cannot_be_used(given, words):
    found = only_finding(RING, "ring", **given)
    assert found.code == "SL206"
    assert words in found.message + (found.help or "")


def test_parameters_and_defaults():
    table = table_of("schedule s(ranks, k=ranks * 2, flag=true, xs=[1, 2], op=max):\n    collective allreduce(op)\n"
                     "    chunks k\n", ranks=3)
    assert table.params == {"k": 6, "flag": True, "xs": [1, 2], "op": "max"} and table.chunks == 6
    assert table.collective.op == "max"
    table = table_of("schedule s(ranks, op=max):\n    collective allreduce(op)\n", ranks=3, params={"op": "min"})
    assert table.collective.op == "min"


def test_the_operator_can_be_replaced():
    assert table_of(RING, "ring", ranks=4, op="bxor").collective.op == "bxor"
    text = "schedule s(ranks):\n    collective broadcast(0)\n"
    assert only_finding(text, ranks=4, op="max").code == "SL206"
    custom = (
        "schedule s(ranks):\n    collective custom\n    buffer input[1], output[1]\n    ensure output[0] on 0 == {}\n"
    )
    assert table_of(custom.format("sum(input[0] on 0..ranks)"), ranks=4, op="max").collective.op == "max"
    assert only_finding(custom.format("input[0] on 1"), ranks=4, op="max").code == "SL206"


GRID = """schedule grid(rows, cols=2):
    ranks rows * cols
    collective allreduce(sum)
    verify rows in 1..4, cols in [1, rows]
"""


def test_cases():
    ring = load_text(RING + "    verify ranks in 2..4, channels in [1, 3]\n")
    assert cases(ring, "ring") == [{"ranks": r, "channels": c} for r in (2, 3) for c in (1, 3)]
    assert cases(ring, "ring", ranks=[8]) == [{"ranks": 8, "channels": 1}, {"ranks": 8, "channels": 3}]
    assert cases(ring, "ring", ranks=[8], params={"channels": 2}) == [{"ranks": 8, "channels": 2}]
    assert cases(ring, "ring", params={"ranks": [5], "channels": [2, 4]}) == [
        {"ranks": 5, "channels": c} for c in (2, 4)
    ]
    assert cases(load_text(RING), "ring") == [{"ranks": r} for r in range(2, 9)]


def test_cases_where_the_world_size_is_computed():
    grid = load_text(GRID)
    assert cases(grid, "grid") == [{"ranks": r * c, "rows": r, "cols": c} for r in (1, 2, 3) for c in (1, r)]
    assert cases(grid, "grid", ranks=[9]) == [{"ranks": 9, "rows": 3, "cols": 3}]
    assert cases(grid, "grid", ranks=[12], params={"rows": [4, 6], "cols": 3}) == [{"ranks": 12, "rows": 4, "cols": 3}]
    with pytest.raises(SchedError) as why:
        cases(grid, "grid", ranks=[7])
    assert codes(why) == ["SL206"] and "1, 2, 3, 4, 9" in why.value.diagnostics[0].message
    assert table_of(GRID, "grid", ranks=9).params == {"rows": 3, "cols": 3}
    assert table_of(GRID, "grid", ranks=10, params={"rows": 5}).params == {"rows": 5, "cols": 2}
    assert only_finding(GRID, "grid", ranks=7).code == "SL206"


def test_cases_that_cannot_be_told():
    for text, given in (("schedule s(ranks, n):\n    collective allreduce(sum)\n", {}),
                        (RING.replace("ring(", "s("), {"params": {"nothing": 3}}),
                        ("schedule s(ranks):\n    collective allreduce(sum)\n    verify ranks in 3\n", {})):
        with pytest.raises(SchedError) as why:
            cases(load_text(text), "s", **given)
        assert codes(why)[0] in ("SL203", "SL206")


@pytest.mark.parametrize("name", ["alltoallv", "allgatherv"])
def test_counts_are_made_up(name):
    text = f"schedule s(ranks, counts):\n    collective {name}(counts)\n"
    for case in cases(load_text(text), "s"):
        counts = case["counts"]
        assert counts.shape == ((case["ranks"],) * 2 if name == "alltoallv" else (case["ranks"],))
        table = table_of(text, ranks=case["ranks"], params={"counts": counts})
        assert (table.collective.counts == counts).all()
    assert any((c["counts"] == 0).any() for c in cases(load_text(text), "s"))
    assert len(cases(load_text(text), "s", ranks=[2], params={"counts": np.ones((2, 2), int)})) == 1


def test_constant_values():
    def one(text):
        return constant_value(parse_value(text, "-p k"))

    assert one("[1, 2]") == [1, 2] and one("0..3") == [0, 1, 2] and one("2 ** 5") == 32 and one("max") == "max"
    assert one("-3") == -3 and one("true") is True and one("[[1], [2, 3]]") == [[1], [2, 3]]
    for text in ("1 // 0", "x + 1", "f(3)", "0..10**12"):
        with pytest.raises(SchedError):
            one(text)


# ---- the collective ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("line", "buffers"), [
    ("allreduce(sum)", [("data", 4, "data", None)]),
    ("allreduce(sum) outofplace", [("input", 4, "input", None), ("output", 4, "output", None)]),
    ("allreduce(sum) inplace=ranks < 0", [("input", 4, "input", None), ("output", 4, "output", None)]),
    ("broadcast(root=1)", [("data", 4, "data", None)]),
    ("reduce(max, 0)", [("data", 4, "data", None)]),
    ("allgather", [("input", 2, "input", None), ("output", 4, "output", None)]),
    ("allgather inplace", [("data", 4, "data", None)]),
    ("reduce_scatter(sum)", [("input", 4, "input", None), ("output", 2, "output", None)]),
    ("gather(1)", [("input", 2, "input", None), ("output", 4, "output", 1)]),
    ("scatter(1)", [("input", 4, "input", 1), ("output", 2, "output", None)]),
    ("scatter(1) inplace", [("data", 4, "data", None)]),
    ("alltoall", [("input", 4, "input", None), ("output", 4, "output", None)]),
])
def test_buffers_of_collectives(line, buffers):
    table = table_of(f"schedule s(ranks):\n    collective {line}\n    chunks 4\n    buffer tmp[3] on host\n", ranks=2)
    assert [(b.name, b.chunks, b.role, b.only) for b in table.buffers] == [*buffers, ("tmp", 3, "scratch", None)]
    assert table.buffers[-1].place == "host"


@pytest.mark.parametrize(("line", "buffers"), [
    ("barrier", [("data", 1)]),
    ("alltoallv([[1, 2], [0, 3]])", [("input", 2), ("output", 2)]),
    ("allgatherv([1, 2])", [("input", 1), ("output", 2)]),
    ("reduce_scatterv(sum, [1, 2])", [("input", 2), ("output", 1)]),
    ("allgatherv([1, 2]) inplace", [("data", 2)]),
    ("allgather", [("input", 1), ("output", 2)]),
    ("allreduce(sum)", [("data", 1)]),
])
def test_default_chunks(line, buffers):
    table = table_of(f"schedule s(ranks):\n    collective {line}\n", ranks=2)
    assert [(b.name, b.chunks) for b in table.buffers] == buffers


def test_declarations_in_any_order():
    text = """schedule s(a):
    let b = 2
    buffer tmp[chunks + b]
    let c = b + 1
    chunks c * ranks
    send tmp[chunks + 1] from 0 to 1
    collective allgather
    ranks a * 2
"""
    table = table_of(text, params={"a": 2})
    assert (table.ranks, table.chunks) == (4, 12)
    assert [(b.name, b.chunks) for b in table.buffers] == [("input", 3), ("output", 12), ("tmp", 14)]


@pytest.mark.parametrize(("body", "read"), [
    ("send input[0] from 0 to 1 into output[1]", False),
    ("send input[0] from 0 to 1 into output[1] if counts[0][1] > 0", True),
    ("send input[0] from 0 to 1 into output[1] if len(counts) > 1", False),
    ("use inner(counts=counts)", False),
    ("use nosy(counts=counts)", True),
])
def test_whether_the_counts_are_read(body, read):
    text = (
        f"schedule s(ranks, counts):\n    collective alltoallv(counts)\n    {body}\n"
        "schedule inner(ranks, counts):\n    collective alltoallv(counts)\n"
        "    send input[0] from 0 to 1 into output[1]\n"
        "schedule nosy(ranks, counts):\n    collective alltoallv(counts)\n"
        "    send input[0] from 0 to 1 into output[1] if counts[1][0] > 0\n"
    )
    table = table_of(text, ranks=2, params={"counts": [[1, 2], [3, 4]]})
    assert table.collective.counts_read is read and len(table) == 2


def test_ensures():
    text = """schedule s(ranks):
    collective custom(max)
    buffer input[2], output[2]
    for r in 0..ranks:
        ensure output[0:r] on r == input[0:r] on (r + 1) % ranks
        ensure output[1] on r == max(input[r % 2] on 0..r + 1) if r < 2
"""
    e = table_of(text, ranks=3).collective.ensures
    ends = e.starts.tolist()
    found = {
        (int(e.buffer[i]), int(e.rank[i]), int(e.chunk[i])): [
            (int(e.source_buffer[j]), int(e.source_rank[j]), int(e.source_chunk[j]))
            for j in range(ends[i], ends[i + 1])
        ]
        for i in range(len(e.rank))
    }
    assert found == {(1, 1, 0): [(0, 2, 0)], (1, 2, 0): [(0, 0, 0)], (1, 2, 1): [(0, 0, 1)],
                     (1, 0, 1): [(0, 0, 0)], (1, 1, 1): [(0, 0, 1), (0, 1, 1)]}
    assert {at.line for at in e.location} == {5, 6}


# ---- what rows know of where they come from ------------------------------------------------------------------------


def test_origins_lead_out_through_the_uses():
    text = """schedule s(ranks):
    collective allreduce(sum)
    for i in 0..2:
        use middle(k=i)
schedule middle(ranks, k):
    collective allreduce(sum)
    for j in 0..2:
        use inner() on [j, k + 2]
schedule inner(ranks):
    collective allreduce(sum)
    for q in 0..2:
        send data[0] from q to 1 - q
"""
    table = table_of(text, ranks=4)
    assert len(table) == 16
    row = next(i for i in range(16) if [values for _, values in table.origins(i)] == [{"q": 1}, {"j": 0}, {"i": 1}])
    assert [place.line for place, _ in table.origins(row)] == [12, 8, 4]
    assert (table.rank[row], table.peer[row]) in ((3, 0), (0, 3))


def test_private_names_are_shared_where_no_rank_is():
    text = """schedule s(ranks):
    collective allreduce(sum)
    for i in 0..2:
        use inner() on [2 * i, 2 * i + 1]
    use inner() on [0, 1]
schedule inner(ranks):
    collective allreduce(sum)
    buffer tmp[1]
    stream own:
        copy data[0] into tmp[0] on 0
        record done on 0
"""
    table = table_of(text, ranks=4)
    assert [b.name for b in table.buffers] == ["data", "inner#1.tmp", "inner#2.tmp"]
    records = table.op == 5
    assert len(set(zip(table.rank[records].tolist(), table.event[records].tolist()))) == records.sum()


def test_a_faulty_schedule_has_no_reverse():
    text = """schedule s(ranks):
    collective reduce(sum, 0)
    use a() reversed
schedule a(ranks):
    collective broadcast(0)
    wait never on 1
    send data[0] from 0 to 1
"""
    found = only_finding(text, ranks=2)
    assert (found.code, found.location.line, found.notes[-1].location.line) == ("SL306", 6, 3)


def test_long_lists_are_never_written_out_for_a_message():
    text = """fn f(xs, i) = xs + i
schedule s(ranks):
    collective allreduce(sum)
    send data[f(0..10**9, 0)] from 0 to 1
"""
    found = only_finding(text, ranks=2)
    assert found.code == "SL203" and "xs = 0..1000000000" in found.notes[0].message
    text = """schedule s(ranks):
    collective allreduce(sum)
    use a(0..10**9)
schedule a(xs, ranks):
    collective allreduce(sum)
"""
    found = only_finding(text, ranks=2)
    assert found.code == "SL208"
    assert only_finding("schedule s(ranks, xs=0..10**9):\n    collective allreduce(sum)\n", ranks=2).code == "SL208"


# ---- depth ---------------------------------------------------------------------------------------------------------


def test_functions_recurse_a_thousand_deep():
    text = ("fn tri(n) = 0 if n == 0 else n + tri(n - 1)\nschedule s(ranks, k):\n    collective allreduce(sum)\n"
            "    chunks tri(k)\n    for r in 0..2:\n        send data[tri(k - r) - 1] from r to 1 - r\n")
    assert table_of(text, ranks=2, params={"k": 999}).chunks == 999 * 1000 // 2
    found = only_finding(text, ranks=2, params={"k": 1001})
    assert found.code == "SL209"


@pytest.mark.parametrize("value", [
    "0 if n == 0 else max([f(m - 1) + m for m in [n]])",
    "0 if n == 0 else len([0] + [f(n - 1), 1]) + [f(n - 1)][0]",
    "0 if n == 0 else (1 if 0 <= n < 10 ** 6 > f(n - 1) else 3)",
    "0 if n == 0 or n < 0 and f(n + 1) > 0 else (((abs(min(n, n) + (f(n - 1) * 1 + 0)) - 1) * 1) if n > 0 else 1)",
])
def test_whatever_stands_between_two_calls_leaves_room_for_a_thousand(value):
    """Python 3.12 and later bound calls that go through C, however large the stack is."""
    text = (f"fn f(n) = {value}\nschedule s(ranks):\n    collective allreduce(sum)\n"
            "    for r in 0..2:\n        send data[0] from r to 1 - r if f(999 - r) >= 0\n")
    assert len(table_of(text, ranks=2)) == 4


def test_recursion_that_would_take_for_ever_does_not():
    text = (
        "fn fib(n) = n if n < 2 else fib(n - 1) + fib(n - 2)\nschedule s(ranks):\n    collective allreduce(sum)\n"
        "    chunks fib(80)\n    for r in 0..ranks:\n        send data[fib(r + 30) % 7] from r to (r + 1) % ranks\n"
    )
    assert only_finding(text, ranks=4).code == "SL205"  # more chunks than a buffer may have, found at once
    table = table_of(text.replace("fib(80)", "fib(60) % 7 + 8"), ranks=40)
    assert len(table) == 80


def test_schedules_may_use_themselves_with_other_parameters():
    text = """schedule s(ranks):
    collective allreduce(sum)
    if ranks > 1:
        let h = ranks // 2
        use s() on 0..h
        use s() on h..ranks
        reduce data[0] from h to 0
"""
    assert len(table_of(text, ranks=8)) == 14
