"""Every error of expansion: its code, its place (marked « » in the text), and the words that name the values."""

import pytest

from schedlang.diagnostics import Severity
from schedlang.expand import expand, load_text
from schedlang.expand.remarks import USELESS

HEAD = """schedule s(ranks, k=2):
    collective allreduce(sum)
    chunks ranks
    buffer tmp[k]
"""
CUSTOM = """schedule s(ranks):
    collective custom
    buffer input[2], output[2]
"""
TAIL = """
fn outer(a) = inner(a) + 1
fn inner(b) = 10 // (b - 4)
fn down(n) = down(n + 1)
schedule t(ranks):
    collective allreduce(sum)
    chunks 2
    send data[0] from 0 to 1
schedule u(ranks):
    collective allgather
    send input[0] from 0 to 1 into output[0]
schedule wrong(ranks, j=0):
    collective allreduce(sum)
    send data[j] from 0 to 1
schedule picky(ranks):
    require ranks > 9, "picky needs more"
    collective allreduce(sum)
schedule circle(ranks):
    collective allreduce(sum)
    use circle()
schedule deeper(ranks, n):
    collective allreduce(sum)
    use deeper(n=n + 1)
schedule gathers(ranks):
    collective gather(1)
    step:
        for r in 0..ranks:
            send input[0] from r to 1 into output[r] if r != 1
schedule barrier(ranks):
    collective barrier
"""

BODY = [
    # names
    ("SL201", "send «dat[0]» from 0 to 1", "data[4], tmp[2]"),
    ("SL201", "send «input[0]» from 0 to 1", "allreduce works in `data`"),
    ("SL201", "send data[«rank»] from 0 to 1", "`ranks`"),
    ("SL201", "if ranks > 90:\n    send data[«nowhere»] from 0 to 1", "nowhere"),
    ("SL201", "send data[«f(3)»] from 0 to 1", "no fn"),
    ("SL201", "for i in 0..«x»:\n    send data[0] from 0 to 1\nlet x = 3", "`x`"),
    ("SL201", "«use nothing()»", "no schedule"),
    ("SL202", "let r = 1\n«for r in 0..2:\n    send data[0] from 0 to 1»", "`r` is bound"),
    ("SL202", "«let k = 1»", "`k` is bound"),
    ("SL202", "buffer «tmp[3]»", "twice"),
    ("SL202", "verify k in 2..4, ranks in [4], «k in 5..6»", "`k in [2, 3, 5]`"),
    ("SL204", "«chan 3»", "`stream NAME:`"),
    ("SL204", "for i in 0..2:\n    on i:\n        «chan x»", "`chan`"),
    ("SL202", "buffer «data[3]»", "`data`"),
    # kinds
    ("SL203", "for r in «ranks»:\n    send data[0] from 0 to 1", "a list is needed"),
    ("SL203", "if «ranks»:\n    send data[0] from 0 to 1", "a boolean is needed"),
    ("SL203", "send data[«true»] from 0 to 1", "an integer is needed"),
    ("SL203", "send data[«[1]»] from 0 to 1", "an integer is needed"),
    ("SL203", "send data[«sum» + 1] from 0 to 1", "a name"),
    ("SL203", "let x = «[1, [2]]»", "one kind"),
    ("SL203", "let x = «[1] + [true]»", "one kind"),
    ("SL203", "let x = «1 == true»", "compares"),
    ("SL203", "let x = «[1] < [2]»", "orders integers"),
    ("SL203", "for r in 0..2:\n    let x = «1 if r == 0 else true»", "differ in kind"),
    ("SL203", "let x = «log2(1, 2)»", "1 argument"),
    ("SL203", "let x = «inner()»", "1 argument"),
    ("SL203", "let x = «(k > 1)» & true", "an integer is needed"),
    ("SL203", "use t() on «3»", "a list is needed"),
    ("SL203", "stream «[1]»: send data[0] from 0 to 1", "a list"),
    # places of statements
    ("SL204", "step:\n    «step: send data[0] from 0 to 1»", "`step`"),
    ("SL204", "step:\n    «use t()»", "`use`"),
    ("SL204", "step:\n    «record ev on 0»", "step by itself"),
    ("SL204", "on 0:\n    «on 1: send data[0] to 0»", "`on`"),
    ("SL204", "on 0: «send data[0] from 0 to 1»", "pairs two ranks"),
    ("SL204", "on 0: «use t()»", "`use`"),
    ("SL204", "on 0: «copy data[0] into tmp[0] on 0»", "already"),
    ("SL204", "«send data[0] to 1»", "own view"),
    ("SL204", "«copy data[0] into tmp[0]»", "on which rank"),
    ("SL204", "«wait ev»", "on which rank"),
    ("SL204", "«ensure data[0] on 0 == data[0] on 1»", "allreduce"),
    ("SL204", "if k > 1:\n    «chunks 3»", "`chunks`"),
    ("SL204", "on 0: recv data[0] from 1 then send to 2 into «tmp[0]»", "own view"),
    # declarations
    ("SL205", "«collective broadcast(0)»", "second"),
    ("SL205", "«chunks 4»", "second"),
    ("SL203", "for i in «3»:\n    send data[0] from 0 to 1", "`[3]`, or a range, `0..3`"),
    ("SL205", "buffer x[«-1»]", "-1 chunks; there can be 0 to 2,147,483,647"),
    ("SL205", "buffer x[«1 << 62»]", "there can be 0 to 2,147,483,647"),
    ("SL206", "verify «channels in 1..3»", "channels"),
    ("SL207", 'for r in 0..ranks:\n    «require r < 2, "too many"»', "too many"),
    ("SL207", "«require k > 2»", "k = 2"),
    # limits
    ("SL208", "for i in «0..10**12»:\n    send data[0] from 0 to 1", "1,000,000,000,000"),
    ("SL208", "for i in 0..10**5:\n    for j in «0..10**5»:\n        send data[0] from 0 to 1", "10,000,000,000"),
    ("SL208", "for i in [x for x in «0..10**12»]:\n    send data[0] from 0 to 1", "1,000,000,000,000"),
    ("SL208", "let x = «(0..10**10) == (0..10)»", "10,000,000,000"),
    ("SL209", "send data[«down(0)»] from 0 to 1", "`down`"),
    ("SL209", "for r in 0..2:\n    send data[«down(r)»] from 0 to 1", "r = 0"),
    # use
    ("SL210", "use t(«3»)", "for 3 ranks"),
    ("SL210", "use t() on «[0, 1, 0]»", "rank 0 stands twice"),
    ("SL210", "for i in 0..3:\n    use t() on «[0, i]»", "i = 0"),
    ("SL210", "use t() on «3..3»", "no ranks"),
    ("SL210", "use t() for «data[0:3]»", "evenly"),
    ("SL210", "use t() for «data[2:2]»", "evenly"),
    ("SL210", "use t() for «data[0:3]»", "`t` is used on 4 ranks, all there are, as there is no `on`"),
    ("SL210", "use t() on 0..3 for «data[0:3]»", "2 chunks of `data` of `t` cannot be spread evenly over 3"),
    ("SL210", "use t() for «input=data[0:2]»", "`input`"),
    ("SL210", "use u() for «data[0:2]»", "`input` and `output`"),
    ("SL210", "use u() for input=data[0:2], «output=data[0:4]»", "must be the same"),
    ("SL210", "«use u()»", "no such buffer"),
    ("SL210", "«use barrier()»", "barrier"),
    ("SL210", "use wrong(«k»)", "another parameter goes by its name, `j=k`"),
    ("SL210", "use wrong(«ranks=k») on [0, 1, 2]", "for 2 ranks, and it is used on 3"),
    ("SL210", "use t(«2»)", "`ranks` can be left out"),
    ("SL210", "use t(«2»)", "for 2 ranks, and it is used on 4, all there are, as there is no `on`"),
    ("SL210", "let few = [0, 2, 0]\nuse t() on «few»", "the ranks that `t` is used on: `few` is [0, 2, 0]"),
    ("SL222", "for r in 3..5:\n    use t() on «[r, r + 1]»", "not among the ranks 0 to 3: `[r, r + 1]` is [3, 4]"),
    ("SL206", "use t(«x=3»)", "`x`"),
    ("SL206", "use t(2, «3»)", "1 parameter"),
    ("SL206", "use t(2, «ranks=2»)", "twice"),
    ("SL222", "use t() on «[0, 9]»", "rank 9"),
    # values
    (
        "SL221",
        "for s in 0..3:\n    for r in 0..ranks:\n        send «data[r + s]» from r to (r + 1) % ranks",
        "chunk 4 of",
    ),
    ("SL221", "send «data[-1]» from 0 to 1", "chunk -1"),
    ("SL221", "send «data[0:5]» from 0 to 1", "[0:5]"),
    ("SL221", "for r in 0..3:\n    send «data[2:3 - r]» from 0 to 1", "r = 2"),
    ("SL221", "on 0: send «data[2:2]» to 1", "empty"),
    ("SL221", "let x = [1, 2, 3][«k + 5»]", "index 7"),
    ("SL221", "let x = [1, 2, 3][«-1»]", "index -1"),
    ("SL221", "let x = «min(0..0)»", "empty"),
    ("SL222", "for r in 0..ranks:\n    send data[r] from r to «r + 1»", "rank 4"),
    ("SL222", "copy data[0] into tmp[0] on «-1»", "rank -1"),
    ("SL222", "on «7»: send data[0] to 0", "rank 7"),
    ("SL223", "for r in 0..ranks:\n    let x = «8 // (r - 2)»", "8 // 0"),
    ("SL223", "send data[«1 << -1»] from 0 to 1", "1 << -1"),
    ("SL223", "let x = «2 ** 63»", "2 ** 63"),
    ("SL223", "let x = «2 ** -1»", "negative exponent"),
    ("SL223", "for r in 1..3:\n    let x = «2 ** 62 * r»", "r = 2"),
    ("SL223", "for r in 0..4:\n    let x = «9223372036854775805 + r»", "r = 3"),
    ("SL223", "let x = «log2(0)»", "log2(0)"),
    ("SL224", "on 1: send data[0] to «1»", "rank 1"),
    ("SL224", "for r in 0..ranks:\n    send data[0] from 0 to «r»", "let the loop, or a trailing `if`"),
    ("SL224", "for r in 0..ranks:\n    send data[0] from r to «2»", "rank 2"),
    ("SL224", "send data[0] from 0 to 1 then send to «1»", "rank 1"),
    ("SL303", "copy data[0:2] into «tmp[0:1]» on 0", "2 chunks"),
    ("SL303", "send data[0:2] from 0 to 1 into «tmp[0]»", "1 chunk"),
]

def check(marked, code, words, **given):
    start, end = marked.index("«"), marked.index("»") - 1
    text = marked.replace("«", "").replace("»", "")
    table, findings = expand(load_text(text, "s.sched"), "s", ranks=4, **given)
    errors = [d for d in findings if d.severity == Severity.ERROR]
    assert table is None and [d.code for d in errors] == [code]
    found = errors[0]
    assert (found.location.start, found.location.end) == (start, end), text[found.location.start : found.location.end]
    said = " ".join([found.message, *(n.message for n in found.notes), found.help or ""])
    assert words in said, said


@pytest.mark.parametrize(("collective", "help"), [
    ("allgather", "allgather reads `input` and leaves its result in `output`; with `inplace`"),
    ("alltoall", "alltoall reads `input` and leaves its result in `output`"),
    ("allreduce(sum) outofplace", "without `outofplace`, it works in `data`"),
    ("custom", "`buffer data[CHUNKS]`"),
])
def test_the_buffers_of_the_collective_are_named(collective, help):
    text = f"schedule s(ranks):\n    collective {collective}\n    send data[0] from 0 to 1\n"
    _, (found,) = expand(load_text(text), "s", ranks=4)
    assert (found.code, found.location.text) == ("SL201", "data[0]") and help in found.help


@pytest.mark.parametrize(("record", "wait", "same"), [
    ("got", "got[0]", True), ("got[i]", "got", True), ("got[i]", "got[i, 0]", False), ("got", "got[0, 1]", False)])
def test_an_event_with_different_numbers_of_indices_is_warned_about(record, wait, same):
    body = f"    for i in 0..1:\n        stream a: record {record} on 0\n        stream b: wait {wait} on 0\n"
    table, findings = expand(load_text(HEAD + body), "s", ranks=4)
    (found,) = (d for d in findings if d.code not in USELESS)
    assert (found.code, found.severity, found.location.text) == ("SL605", Severity.WARNING, f"wait {wait} on 0")
    assert f"`{wait}` here and `{record}` elsewhere" in found.message
    assert ("`got` is `got[0]`" in found.message) == same
    assert [n.location.text for n in found.notes] == [f"record {record} on 0"]
    assert table.event[0] == table.event[1] if same else table.event[0] != table.event[1]


def test_an_event_with_one_number_of_indices_is_not_warned_about():
    body = "    stream a: record got on 0\n    stream b: wait got on 0\n    stream c: wait other[0] on 0\n"
    assert [d for d in expand(load_text(HEAD + body), "s", ranks=4)[1] if d.code not in USELESS] == []


@pytest.mark.parametrize(("code", "body", "words"), BODY, ids=lambda v: None)
def test_bodies(code, body, words):
    check(HEAD + "".join(f"    {line}\n" for line in body.split("\n")) + TAIL, code, words)


DECLARATIONS = [
    ("SL205", "schedule «s»(ranks):\n    chunks 2\n", "implements"),
    ("SL205", "schedule «s»(n=4):\n    collective allreduce(sum)\n", "how many ranks"),
    ("SL205", "schedule s(ranks):\n    «collective allreduc(sum)»\n", "`allreduce`"),
    ("SL205", "schedule s(ranks):\n    «collective allreduce»\n", "`op`"),
    ("SL205", "schedule s(ranks):\n    «collective allreduce»\n", "`collective allreduce(sum)`"),
    ("SL205", "schedule s(ranks):\n    «collective gather»\n", "`collective gather(0)`"),
    ("SL205", "schedule s(ranks):\n    «collective reduce(sum)»\n", "`collective reduce(sum, 0)`"),
    ("SL205", "schedule s(ranks):\n    «collective alltoallv»\n", "with `counts` a parameter"),
    ("SL205", "schedule s(ranks):\n    collective allreduce(«add»)\n", "did you mean `sum`?"),
    ("SL205", "schedule s(ranks):\n    collective allreduce(op=«mean»)\n", "did you mean `avg`?"),
    ("SL205", "schedule s(ranks):\n    collective custom\n    buffer input[1], output[1]\n"
              "    ensure output[0] on 0 == «total(input[0] on 0..ranks)»\n", "the operators are sum"),
    ("SL205", "schedule s(ranks):\n    collective allreduce(«avrg»)\n", "`avg`"),
    ("SL205", "schedule s(ranks):\n    collective broadcast(0, «1»)\n", "too many"),
    ("SL205", "schedule s(ranks):\n    collective broadcast(«rot=0»)\n", "`root`"),
    ("SL222", "schedule s(ranks):\n    collective broadcast(«4»)\n", "root 4"),
    ("SL222", "schedule s(ranks, k=3):\n    let root = k + 1\n    collective broadcast(«root»)\n", "root 4"),
    ("SL207", "schedule s(ranks, root=4):\n    collective broadcast(«root»)\n", "the ranks are 0 to 3"),
    ("SL207", "schedule s(ranks, k=-1):\n    collective reduce(sum, root=«k»)\n", "root -1 is not among the ranks"),
    ("SL205", "schedule s(ranks):\n    «collective alltoall inplace»\n", "inplace"),
    ("SL205", "schedule s(ranks):\n    «collective allreduce(sum) inplace outofplace»\n", "exclude"),
    ("SL205", "schedule s(ranks):\n    collective allgather\n    «chunks 6»\n", "multiple of 4"),
    ("SL205", "schedule s(ranks):\n    collective barrier\n    «chunks 2»\n", "1 chunks"),
    ("SL205", "schedule s(ranks):\n    collective allgatherv([1, 2, 3, 4])\n    «chunks 8»\n", "4 chunks"),
    ("SL205", "schedule s(ranks):\n    collective allgatherv(«[1, 2]»)\n", "a list of 4"),
    ("SL205", "schedule s(ranks):\n    collective alltoallv(«[1, 2, 3, 4]»)\n", "4 lists"),
    ("SL205", "schedule s(ranks):\n    collective allgatherv(«[1, 2, -3, 4]»)\n", "-3"),
    ("SL205", "schedule s(ranks):\n    collective allreduce(sum)\n    chunks «0»\n", "0"),
    ("SL205", "schedule s(ranks, k=0, b=3):\n    collective allreduce(sum)\n    chunks «b * k»\n", "b = 3, k = 0"),
    ("SL205", "schedule s():\n    collective allreduce(sum)\n    ranks «-4»\n", "-4"),
    ("SL205", "schedule s():\n    collective allreduce(sum)\n    «ranks ranks»\n", "itself"),
    ("SL205", "schedule s(ranks):\n    collective allreduce(sum)\n    «let a = chunks»\n    chunks a\n", "itself"),
    ("SL202", "schedule s(ranks, «ranks»):\n    collective allreduce(sum)\n", "`ranks`"),
    ("SL206", "schedule s(ranks, «n»):\n    collective allreduce(sum)\n", "`n`"),
    ("SL204", "schedule s(ranks):\n    collective broadcast(0)\n    «reduce data[0] from 0 to 1»\n", "no"),
    (
        "SL210",
        "schedule s(ranks):\n    collective broadcast(0)\n    «use r()»\nschedule r(ranks):\n"
        "    collective allreduce(sum)\n    reduce data[0] from 0 to 1\n",
        "no operator",
    ),
    ("SL221", "schedule s(ranks):\n    collective gather(1)\n    copy input[0] into «output[0]» on 0\n", "root"),
    (
        "SL221",
        "schedule s(ranks):\n    collective gather(1)\n    «use g()»\nschedule g(ranks):\n    collective allgather\n"
        "    copy input[0] into output[0] on 0\n",
        "rank 0",
    ),
    # custom
    (
        "SL205",
        "schedule s(ranks):\n    collective custom\n    buffer input[1], output[1]\n"
        "    ensure output[0] on 0 == «output[0]» on 1\n",
        "initial",
    ),
    (
        "SL205",
        "schedule s(ranks):\n    collective custom\n    buffer input[1], output[1]\n"
        "    ensure output[0] on 0 == input[0] on 1\n"
        "    «ensure output[0] on 0 == input[0] on 2»\n",
        "twice",
    ),
    (
        "SL222",
        "schedule s(ranks):\n    collective custom\n    buffer input[1], output[1]\n"
        "    ensure output[0] on 0 == sum(input[0] on «[1, 1]»)\n",
        "twice",
    ),
    (
        "SL205",
        "schedule s(ranks):\n    collective custom(max)\n    buffer input[1], output[1]\n"
        "    ensure output[0] on 0 == «sum(input[0] on 0..2)»\n",
        "max",
    ),
    (
        "SL303",
        "schedule s(ranks):\n    collective custom\n    buffer input[2], output[1]\n"
        "    ensure output[0] on 0 == «input[0:2]» on 1\n",
        "2 chunks",
    ),
]


@pytest.mark.parametrize(("code", "text", "words"), DECLARATIONS, ids=lambda v: None)
def test_declarations(code, text, words):
    check(text, code, words)


def findings(body, **given):
    text = HEAD + "".join(f"    {line}\n" for line in body.split("\n")) + TAIL
    return expand(load_text(text, "s.sched"), "s", ranks=4, **given)[1]


def test_errors_inside_a_used_schedule_name_the_use():
    found = findings("for i in 1..3:\n    use wrong(j=3 * i)")
    assert [(d.code, d.location.text, d.notes[-1].location.text) for d in found] == [
        ("SL221", "data[j]", "use wrong(j=3 * i)")]
    assert "j = 3" in found[0].notes[-1].message and "i = 1" in found[0].notes[-1].message
    assert [d.code for d in findings("use picky()")] == ["SL207"]
    assert len(findings("use wrong(j=3)\nuse wrong(j=3)")) == 1


def test_errors_inside_functions_name_the_calls():
    found, = findings("for r in 2..6:\n    send data[outer(r)] from 0 to 1")
    assert (found.code, found.location.text) == ("SL223", "10 // (b - 4)")
    assert [n.location.text for n in found.notes[:2]] == ["inner(a)", "outer(r)"]
    assert found.notes[-1].message == "where r = 4"


def test_circles_and_depths_of_use():
    assert [d.code for d in findings("use circle()")] == ["SL209"]
    assert [d.code for d in findings("use deeper(n=0)")] == ["SL209"]


def test_independent_errors_are_all_found():
    found = findings("send data[9] from 0 to 1\nlet x = 1 // 0\nsend data[x] from 0 to 1\nsend data[0] from 0 to 9")
    assert [d.code for d in found] == ["SL221", "SL223", "SL222"]


def test_a_failed_requirement_ends_it():
    found = findings("require ranks > 4\nsend data[9] from 0 to 1")
    assert [d.code for d in found] == ["SL207"]


@pytest.mark.parametrize(("body", "where"), [
    ("let d = 2\nfor r in 0..ranks:\n    let p = r + d\n    let q = 5\n    send data[0] from r to p", "r = 2, p = 4"),
    ("for j in 0..2:\n    let d = 2 << j\n    for r in 0..ranks:\n        send data[r + d] from 0 to 1",
     "j = 0, r = 2, d = 2"),
    ("let d = ranks\nsend data[d] from 0 to 1", "d = 4"),
    ("let xs = [3, 4, 5]\nfor x in [x for x in xs if x > 3]:\n    send data[xs[x - 3]] from 0 to 1",
     "x = 4, xs = [3, 4, 5]"),
])
def test_the_values_that_a_faulty_place_reads_are_told(body, where):
    found, = findings(body)
    assert [n.message for n in found.notes] == [f"where {where}"]


@pytest.mark.parametrize(("before", "require"), [
    *((before, "require k > 2") for before in ("send data[9] from 0 to 1", "buffer big[-1]", "let x = down(0)",
                                               "let x = 1 // (k - 2)", "use wrong(j=3)")),
    ("send data[9] from 0 to 1", "for i in 0..3:\n    require k > i")])
def test_a_requirement_that_does_not_hold_is_all_that_is_said(before, require):
    assert [d.code for d in findings(f"{before}\n{require}")] == ["SL207"]
    code, = {d.code for d in findings(before)}
    assert [d.code for d in findings(f"{before}\nrequire k > 1")] == [code] and code != "SL207"


def test_a_root_that_a_requirement_excludes_is_no_fault():
    text = "schedule s(ranks, root=0):\n    collective gather(root)\n    require root < ranks\n"
    assert [d.code for d in expand(load_text(text), "s", ranks=3, params={"root": 3})[1]] == ["SL207"]


def test_counts_of_equal_findings():
    found, = findings("for r in 0..ranks:\n    send data[r + 2] from r to (r + 1) % ranks")
    assert found.count == 2 and found.witness == {"loop": {"r": 2}}


def test_enormous_expansions_are_refused_before_they_are_made():
    for body in ("for i in 0..2**62:\n    send data[0] from 0 to 1", "for i in 0..10**4:\n    for j in 0..10**4:\n"
                 "        for l in 0..10**4:\n            send data[0] from 0 to 1"):
        assert [d.code for d in findings(body)] == ["SL208"]
    assert [d.code for d in findings("for i in 0..100:\n    send data[0] from 0 to 1", max_ops=150)] == ["SL208"]


SHARED = "fn g(n) = [0] if n < 1 else [g(n - 1), g(n - 1)]\nfn h(x) = 1\n"
TREE = "fn g(n, k) = 1 if n < 1 else g(n - 1, 2 * k) + g(n - 1, 2 * k + 1)\n"


@pytest.mark.parametrize(("functions", "value", "words"), [
    (SHARED, "g(200)", "lists in lists"), (SHARED, "h(g(200))", "lists in lists"),
    (SHARED, "g(200) == g(200)", "lists in lists"), (TREE, "g(60, 1)", "function calls"),
    ("", "(0..1 << 28) + (0..1 << 28)", "lists of more than")])
def test_short_texts_of_enormous_values_are_refused_at_once(monkeypatch, functions, value, words):
    monkeypatch.setattr("schedlang.expand.calls.MAX_CALLS", 1 << 12)
    text = f"{functions}schedule a(ranks):\n    collective barrier\n    let x = {value}\n    require len([x]) == 1\n"
    _, found = expand(load_text(text), "a", ranks=2)
    assert [d.code for d in found] == ["SL208"] and words in found[0].message


@pytest.mark.parametrize("truth", [
    "[[1], []][1] == []", "[x for x in 0..3 if x > 5] == [[1], []][1]", "[[1, 2], [3]] != [[1], [2, 3]]",
    "[[true]] != [[false]]", "[[1], [2]] == [[i + 1] for i in 0..2]", "[[], []] != [[]]", "[[[]], []] != [[], [[]]]",
    "[1, 2] + [3] == [1, 2, 3]", "[[1]] + [[2, 3]] == [[1], [2, 3]]"])
def test_lists_are_equal_where_their_elements_are(truth):
    text = f"schedule a(ranks):\n    collective barrier\n    require {truth}\n"
    assert not [d for d in expand(load_text(text), "a", ranks=1)[1] if d.code == "SL207"]


def test_near_misses_among_streams_are_warned_about():
    table, found = expand(
        load_text(
            HEAD + "    stream wire: send data[0] from 0 to 1\n    stream wire: send data[1] from 0 to 1\n"
            "    stream wier: send data[2] from 0 to 1\n"
        ),
        "s",
        ranks=4,
    )
    assert table is not None
    said = [(d.code, d.severity, d.location.text) for d in found if d.code not in USELESS]
    assert said == [("SL601", Severity.WARNING, "wier")]


@pytest.mark.parametrize(("code", "body"), [
    ("SL610", "collective allreduce(sum)\nbuffer t[1]\nuse one()"),
    ("SL610", "collective custom\nbuffer input[1], t[1]\nensure input[0] on 0 == input[0] on 0"),
    ("SL612", "collective allreduce(sum)\nsend data[0] from 0 to 1"),
    ("SL612", "collective allreduce(sum)\nlet xs = [j for j in 0..2]\nverify ranks in 2..9, k in [1]"),
    ("SL611", "collective allreduce(sum)\nuse one()\nrecord got on k"),
    ("SL609", "collective allreduce(sum)\nstream a:\n    if k > 0: wait got on 0\nrecord got on 0"),
    ("SL609", "collective allreduce(sum)\nstream a:\n    stream b[k]: wait got on 0\nrecord got on 0"),
])
def test_what_is_declared_for_nothing(code, body):
    assert code in useless(body)


@pytest.mark.parametrize("body", [
    "collective allreduce(sum)\nbuffer t[1]\non k: copy data[0] into t[0]",
    "collective allreduce(sum)\nbuffer t[1]\nsend data[0] from 0 to k then send to 2 into t[0]",
    "collective custom\nbuffer input[k]\nuse two()",       # works in the buffers of the schedule that uses it
    "collective custom\nbuffer input[1], t[k]\nensure t[0] on 0 == input[0] on 0",
    "collective allreduce(sum)\nbuffer t[k]\nuse one() for data=t[0:1]",
    "collective allreduce(k)", "collective allreduce(sum)\nchunks k", "collective allreduce(sum)\nstream k: use one()",
    "collective allreduce(sum)\nuse one(ranks=k + 1) on [0, 1]",
    "collective allreduce(sum)\nrequire k > 0",
    "collective allreduce(sum)\nstream a: use one(ranks=k + 3)",
    "collective allreduce(sum)\nstream a:\n    if k > 0:\n        stream b: use one()",
    "collective allreduce(sum)\nstream a:\n    record got on k\nwait got on k",
    "collective barrier\nchunks k\nstream a: record got on 0",
])
def test_what_is_used_somehow_is_not_remarked_upon(body):
    assert useless(body) == []


def test_what_is_useless_is_not_said_of_a_schedule_that_does_not_expand():
    assert useless("collective allreduce(sum)\nbuffer t[1]\nsend data[9] from 0 to 1", codes=("SL221",)) == []


def useless(body, codes=()):
    one = "schedule one(ranks):\n    collective allreduce(sum)\n    for r in 1..ranks: reduce data[0] from r to 0\n"
    two = "schedule two(ranks):\n    collective custom\n    buffer input[1]\n    send input[0] from 0 to 1\n"
    text = f"{one}{two}schedule s(ranks, k=1):\n" + "".join(f"    {line}\n" for line in body.split("\n"))
    _, findings = expand(load_text(text), "s", ranks=4)
    errors = [d.code for d in findings if d.severity == Severity.ERROR and "`k` is no" not in d.message]
    assert errors == list(codes), findings
    return [d.code for d in findings if d.code in USELESS]
