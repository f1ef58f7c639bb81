"""Sizes of one program share what they use; nothing of what is said of a size depends on those before it."""

import numpy as np
import pytest

from schedlang.expand import Texts, cases, expand, expansion, load_program, load_text
from schedlang.ir.json import dumps

USES = """\
fn half(n) = 0 if n < 2 else 1 + half(n // 2)

schedule inner(ranks, k):
    collective broadcast(0)
    stream lonely: record done on 0
    for r in 1..ranks:
        for i in 0..k + half(k):
            send data[0] from 0 to r

schedule middle(ranks, k):
    collective broadcast(0)
    use inner(ranks, k)

schedule outer(ranks, k=2):
    collective broadcast(0)
    verify ranks in 2..5, k in [2, 3]
    use middle(2, k) on [0, 1]
    use middle(2, k) on [0, 1]
    use inner(ranks, k)
    use inner(2, k) on [ranks - 2, ranks - 1] if ranks > 3
    use inner(2, k) on [1, 0] reversed if ranks == 77
"""


def said(program, ranks, k=2, **more):
    table, findings = expand(program, "outer", ranks=ranks, params={"k": k}, **more)
    return None if table is None else dumps(table), [str(d) for d in findings]


def test_a_size_is_what_it_is_alone():
    shared = load_text(USES)
    for values in cases(shared, "outer"):
        alone = said(load_text(USES), values["ranks"], values["k"])
        assert said(shared, values["ranks"], values["k"]) == alone
        assert alone[0] is not None and any("warning" in text for text in alone[1])
    assert shared.kept


@pytest.mark.parametrize("limit", range(1, 40))
def test_limits_count_what_was_kept(limit):
    shared = load_text(USES)
    said(shared, 4, max_ops=limit)
    for ranks in (3, 5, 4):
        assert said(shared, ranks, max_ops=limit) == said(load_text(USES), ranks, max_ops=limit)


def test_function_calls_count_what_was_kept(monkeypatch):
    for limit in range(1, 12):
        monkeypatch.setattr("schedlang.expand.calls.MAX_CALLS", limit)
        shared = load_text(USES)
        for ranks in (2, 3, 4):
            assert said(shared, ranks, k=4) == said(load_text(USES), ranks, k=4)


def test_the_depth_of_uses_counts_what_was_kept(monkeypatch):
    shared = load_text(USES)
    assert said(shared, 4)[0] is not None
    monkeypatch.setattr(expansion, "MAX_USES", 1)
    assert said(shared, 4) == said(load_text(USES), 4)
    assert "more than 1 deep" in said(shared, 4)[1][0]


def test_large_tables_and_many_are_made_anew(monkeypatch):
    monkeypatch.setattr(expansion, "KEPT_ROWS", 3)
    shared = load_text(USES)
    said(shared, 5)
    assert all(len(kept.table) <= 3 for kept in shared.kept.values())
    monkeypatch.setattr(expansion, "KEPT", 0)
    shared = load_text(USES)
    said(shared, 5)
    assert not shared.kept


def test_programs_share_what_was_read(tmp_path, monkeypatch):
    (tmp_path / "parts.sched").write_text(USES)
    for name in "ab":
        (tmp_path / f"{name}.sched").write_text(
            f'import "parts.sched"\n\nschedule {name}(ranks):\n    collective broadcast(0)\n    use inner(ranks, 1)\n')
    parsed = []
    from schedlang import syntax

    parse = syntax.parse
    monkeypatch.setattr(syntax, "parse", lambda source: parsed.append(source.path) or parse(source))
    texts = Texts()
    for name in "ab":
        table, _ = expand(load_program(str(tmp_path / f"{name}.sched"), texts), name, ranks=3)
        assert table is not None and np.array_equal(np.unique(table.rank), [0, 1, 2])
    assert [path.rsplit("/", 1)[1] for path in parsed] == ["a.sched", "parts.sched", "b.sched"]
    (tmp_path / "parts.sched").write_text("schedule other(ranks):\n    collective barrier\n")
    table, found = expand(load_program(str(tmp_path / "b.sched"), texts), "b", ranks=3)
    assert table is None and "inner" in str(found[0])       # a text that has changed is read again
