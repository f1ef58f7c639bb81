"""The chain that `verify --why` shows, on random tiny tables: there is one exactly where something orders the two, each
link of it is of the kind it says, and no chain has fewer."""

from collections import Counter
from itertools import product
from random import Random

import pytest

from schedlang.ir.table import NONE
from schedlang.ops import Op
from schedlang.verify.matching import match
from schedlang.verify.sends import Sends
from schedlang.verify.timing import why
from schedlang.verify.timing.graph import build
from tests.tables import allreduce
from tests.unit.order_oracle import Oracle, random_table

MODELS = {"rendezvous": {"lane", "message", "event", "fused", "room"},
          "buffered=1": {"lane", "message", "event", "fused", "room"},
          "unlimited": {"lane", "message", "event", "fused"}}
RECEIVES = (Op.RECV, Op.REDUCE_RECV)


def kind(table, found, sends, before, after):
    """What makes row ``after`` wait for row ``before``, read from the table alone; None where nothing does."""
    op, same = table.op, table.rank[before] == table.rank[after]
    pair = [(table.rank[r], table.peer[r]) if op[r] == Op.SEND else (table.peer[r], table.rank[r])
            for r in (before, after)]
    connected = pair[0] == pair[1] and table.chan[before] == table.chan[after] and max(op[before], op[after]) < Op.COPY
    if same and table.stream[before] == table.stream[after] and table.step[before] < table.step[after]:
        return "head" if connected and op[before] in RECEIVES and op[after] in RECEIVES and sends.depth == 0 else "lane"
    if table.of[after] == before:
        return "fused"
    if op[before] == Op.SEND and found.partner[before] == after:
        return "message"
    if op[before] == Op.RECORD and op[after] == Op.WAIT and same and table.event[before] == table.event[after]:
        return "event"
    if connected and op[before] in RECEIVES and op[after] == Op.SEND:
        behind = int(found.message[after]) - int(found.message[before])
        return "room" if sends.depth is not None and behind == sends.depth else None
    return "head" if connected and sends.depth == 0 and {int(op[before]), int(op[after])} <= {*RECEIVES} else None


@pytest.mark.parametrize("model", MODELS)
def test_there_is_a_chain_where_something_orders_the_two(model):
    random, seen, sends = Random(model), Counter(), Sends.parse(model)
    for _ in range(60):
        table = random_table(random, statements=7, ranks=3, swaps=1)
        found = match(table, sends)
        oracle = Oracle(table, sends.depth)
        counts, _ = oracle.run()
        posted = {j for j in range(len(table)) if counts[oracle.step(j)[:2]] > oracle.rows[j]["step"]}
        a = random.randrange(len(table))
        without = oracle.posted_without(a)
        for b in posted:
            expected = b not in without and a in posted
            assert (why.path(table, found, a, b, sends) is not None) == expected
            seen[expected] += 1
    assert min(seen.values()) > 30, seen


@pytest.mark.parametrize("model", MODELS)
def test_each_link_is_what_it_says(model):
    random, kinds, sends = Random(model), Counter(), Sends.parse(model)
    for k in range(160):
        table = random_table(random, statements=10, ranks=3, swaps=1, shared_chan=k % 4 == 0)
        found = match(table, sends)
        if any(d.code == "SL304" for d in found.diagnostics):
            continue
        step = list(zip(table.rank.tolist(), table.stream.tolist(), table.step.tolist(), strict=True))
        for a, b in product(random.sample(range(len(table)), 2), range(len(table))):
            now, hops = a, why.path(table, found, a, b, sends)
            for hop in hops or ():
                # Within a step no link is told, but for a receive and what passes it on.
                assert hop.before == now or (step[hop.before] == step[now] and table.of[hop.before] != now)
                is_of = kind(table, found, sends, hop.before, hop.after)
                assert hop.kind == is_of or (hop.kind, is_of) == ("lane", "head")
                kinds[hop.kind] += 1
                now = hop.after
            assert not hops or now == b or (step[now] == step[b] and table.of[b] != now)
    assert set(kinds) == MODELS[model], kinds


@pytest.mark.parametrize("model", MODELS)
def test_no_chain_has_fewer_edges(model):
    random, seen, depth = Random(model), Counter(), Sends.parse(model).depth
    for _ in range(40):
        table = random_table(random, statements=8, streams=1)
        graph = build(table, match(table), depth)
        edges = [(int(v), int(v) + 1, 0) for v in range(graph.never) if graph.lane_edges[v]]
        edges += [(v, w, 1) for v, w in zip(graph.source.tolist(), graph.target.tolist(), strict=True)
                  if graph.never not in (v, w)]
        reached = [v for v in range(graph.never) if graph.level[v] != NONE]
        for source in random.sample(reached, min(4, len(reached))):
            far = {source: 0}
            for _ in range(graph.nodes):
                for v, w, cost in edges:
                    if v in far:
                        far[w] = min(far[v] + cost, far.get(w, graph.nodes))
            for target in reached:
                chain = why._search(graph, source, target)
                assert (None if chain is None else len(chain)) == far.get(target)
                seen[None if chain is None else len(chain)] += 1
                for edge, following in zip(chain or (), (chain or ())[1:]):
                    assert graph.target[edge] <= graph.source[following]
    assert seen[None] > 50 and len(seen) > 4


def test_what_waits_behind_another_message():
    """Rank 1 takes two messages of rank 0 in one step and passes the first on to rank 2, which is late; the second,
    which rank 0 passes on, has to wait, and so has rank 3, where it comes from."""
    at = {"buffer": "data"}
    table = allreduce([
        dict(op="send", rank=0, peer=1, chunk=0, **at), dict(op="recv", rank=0, peer=3, chunk=1, **at),
        dict(op="send", rank=0, peer=1, chunk=1, of=1, **at), dict(op="send", rank=3, peer=0, chunk=1, **at),
        dict(op="recv", rank=1, peer=0, chunk=0, **at), dict(op="send", rank=1, peer=2, chunk=0, of=4, **at),
        dict(op="recv", rank=1, peer=0, chunk=1, **at),
        dict(op="copy", rank=2, chunk=2, from_buffer="data", from_chunk=1, **at),
        dict(op="recv", rank=2, peer=1, chunk=0, step=1, **at)], 4, chunks=3)
    found = match(table)
    hops = why.path(table, found, 7, 3, Sends(False, 0), until="end")
    assert [(h.kind, h.before, h.after) for h in hops] == [
        ("lane", 7, 8), ("room", 8, 5), ("head", 4, 6), ("room", 6, 2), ("room", 1, 3)]
    assert why.path(table, found, 7, 3, Sends(False, None), until="end") is None


def test_of_one_step_only_the_post_comes_before_the_end():
    table = random_table(Random(1), statements=2, ranks=2, streams=1, fused=False)
    found = match(table)
    assert why.path(table, found, 0, 0) is None and why.path(table, found, 0, 0, until="end") is None
    assert why.path(table, found, 0, 0, start="post", until="end") == []
