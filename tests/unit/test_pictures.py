"""Drawings and pages of schedules: that they are well-formed, show everything once, and tell what is wrong."""

import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedlang.cli.main import main
from schedlang.expand import cases, expand, load_program, load_text
from schedlang.ir.build import table_from_rows
from schedlang.ir.table import Buffer, Collective, Site
from schedlang.ops import Op
from schedlang.render.cells import Cells
from schedlang.render.holdings import walk
from schedlang.render.html import html
from schedlang.render.svg import svg
from schedlang.render.timeline import TooLarge, timeline
from schedlang.verify import verify
from tests.strategies import arbitrary_tables, tables
from tests.tables import allreduce, ring

ROOT = Path(__file__).parents[2]
EXAMPLES = [(path, name) for path in sorted((ROOT / "examples").rglob("*.sched"))
            for name in load_program(str(path)).names]
SVG = "{http://www.w3.org/2000/svg}"


class Page(HTMLParser):
    """The parts of a page that the tests look at, and whether its tags match."""

    VOID = frozenset({"meta", "link", "input", "br"})

    def __init__(self, text):
        super().__init__()
        self.ids, self.open, self.script, self.text, self.tags = [], [], "", "", Counter()
        self.feed(text)
        self.close()
        assert not self.open, "every element ends"

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        self.tags[tag] += 1
        if tag not in self.VOID:
            self.open.append((tag, dict(attrs)))

    def handle_startendtag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open and self.open[-1][1].get("id") == "data":
            self.script += data
        elif self.open and self.open[-1][0] not in ("style", "script"):
            self.text += data

    @property
    def data(self):
        return json.loads(self.script)


def table_of(text, ranks, **params):
    program = load_text(text)
    table, findings = expand(program, program.names[0], ranks=ranks, params=params)
    assert table is not None, findings
    return table


def drawn(table, wanted=None):
    """The root of the drawing, checked: well-formed, ids unique, everything inside."""
    text = svg(table, walk(table), wanted, verify(table).diagnostics)
    root = ET.fromstring(text)
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    assert len(ids) == len(set(ids)) and "nan" not in text.lower() and "inf" not in re.sub(r"<[t/].*", "", text)
    _, _, wide, high = map(float, root.get("viewBox").split())
    (shift,) = [e for e in root if e.get("transform", "").startswith("translate(0 ")]
    top = float(shift.get("transform").split()[1].rstrip(")"))
    for element in shift.iter():
        for x, y in points(element):
            assert 0 <= x <= wide and 0 <= y + top <= high, (element.tag, element.attrib)
    assert root.get("role") == "img"
    told = [root.find(f"{SVG}{tag}").get("id") for tag in ("title", "desc")]
    assert told == root.get("aria-labelledby").split()
    return root


def points(element):
    """The points of an element: corners, ends, and what a path names in absolute coordinates."""
    number = {k: float(element.get(k, 0)) for k in ("x", "y", "width", "height", "cx", "cy", "r")}
    if element.tag == f"{SVG}rect":
        yield number["x"], number["y"]
        yield number["x"] + number["width"], number["y"] + number["height"]
    elif element.tag == f"{SVG}circle":
        yield number["cx"] - number["r"], number["cy"] - number["r"]
        yield number["cx"] + number["r"], number["cy"] + number["r"]
    elif element.tag == f"{SVG}text":
        yield number["x"], number["y"]
    for command, values in re.findall(r"([A-Za-z])([^A-Za-z]*)", element.get("d", "")):
        numbers = [float(v) for v in values.split()]
        if command in "MLC":
            yield from zip(numbers[::2], numbers[1::2])
        elif command == "H":
            yield numbers[0], 0
        else:
            assert command in "lvhVz", "every other command is relative, and short"


def having(root, *classes):
    return [e for e in root.iter() if set(classes) <= set(e.get("class", "").split()) and e.get("data-step")]


# ---- everything is there -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "name"), EXAMPLES, ids=[name for _, name in EXAMPLES])
def test_every_shipped_schedule_is_drawn(path, name):
    program = load_program(str(path))
    by_size = {}
    for values in cases(program, name):
        if values["ranks"] in (1, 4, 5, 6) and values["ranks"] not in by_size:
            by_size[values["ranks"]] = values
    assert by_size
    for values in by_size.values():
        params = {k: v for k, v in values.items() if k != "ranks"}
        table, _ = expand(program, name, ranks=values["ranks"], params=params)
        if table is None:
            continue
        root, walked = drawn(table), walk(table)
        receives = np.isin(table.op, (Op.RECV, Op.REDUCE_RECV)).sum()
        assert len(having(root, "arrow")) == receives and not having(root, "away") and not having(root, "stuck")
        assert len(having(root, "column")) - len(walked.rounds) in (0, 1)      # one more where events come last
        page = Page(html(table, walked, None, verify(table).diagnostics))
        assert len(page.ids) == len(set(page.ids))
        data = page.data
        state = {(rank, column): text for rank, column, text in data["start"]}
        for step in data["steps"]:
            state |= {(rank, column): text for rank, column, text in step["changes"]}
        *_, last = walked.states()
        cells, names = Cells(table, walked), [f"{b.name}[{c}]" for b in table.buffers for c in range(b.chunks)]
        assert state == {(rank, data["columns"].index(f"{table.buffers[b].name}[{c}]")): cells.text((b, rank, c), value)
                         for (b, rank, c), value in last.items()}
        assert set(data["columns"]) <= set(names)
        for step in data["steps"]:
            assert step["operations"] or not step["changes"]
            for file, line in step["lines"]:
                text = data["sources"][file]["lines"][line - 1]
                assert re.search(r"\b(send|reduce|copy|recv|use|record|wait)\b", text)


def test_arrows_lead_from_the_senders_band_to_the_receivers():
    table = ring(5)
    plan = timeline(table, walk(table))
    band = {b.rank: range(int(b.y), int(b.y + b.height) + 1) for b in plan.bands}
    for arrow in plan.arrows:
        send, receive = arrow.rows
        start = [float(v) for v in re.match(r"M(\S+) (\S+?)C", arrow.path).groups()]
        assert int(start[1]) in band[table.rank[send]] and int(arrow.tip[1]) in band[table.rank[receive]]
        assert start[0] < arrow.tip[0] and arrow.reduces == (table.op[receive] == Op.REDUCE_RECV)
        assert arrow.chunk == table.chunk[send]
    assert Counter(arrow.step for arrow in plan.arrows) == dict.fromkeys(range(8), 5)
    assert Counter(row for chip in plan.chips for row in chip.rows) == dict.fromkeys(range(len(table)), 1)


def test_nothing_lies_on_anything_else():
    for table in (ring(6), table_of((ROOT / "examples/broadcast/staged_chain.sched").read_text(), 5, k=3),
                  table_of((ROOT / "examples/allreduce/all_pairs_one_shot.sched").read_text(), 6)):
        chips = timeline(table, walk(table)).chips
        boxes = sorted((chip.y, chip.x, chip.x + chip.width) for chip in chips)
        assert all(a[0] != b[0] or a[2] <= b[1] for a, b in pairwise(boxes))


LATE = """\
schedule late(ranks):
    collective gather(0)
    copy input[0] into output[0] on 0
    for r in 1..ranks:
        send input[0] from r to 0 into output[r]
"""


def test_what_arrives_later_travels_above_its_receiver_on_a_track_of_its_own():
    table = table_of(LATE, 5)
    plan = timeline(table, walk(table))
    gaps = [float(re.search(r"(\S+)H", arrow.path)[1]) for arrow in plan.arrows]
    assert len(set(gaps)) == len(gaps) == 4 and max(gaps) < plan.bands[0].y
    assert [chip.step for chip in plan.chips if chip.kind == "send"] == [0] * 4
    drawn(table)


def test_a_part_of_the_steps():
    table = table_of(LATE, 5)
    root = drawn(table, range(2, 4))
    assert "; here steps 2 to 3" in "".join(root.itertext())
    assert {e.get("data-step") for e in having(root)} == {"2", "3"} and len(having(root, "arrow")) == 2
    data = Page(html(table, walk(table), range(2, 4))).data
    assert [step["name"] for step in data["steps"]] == ["step 2", "step 3"] and data["first"] == 2
    assert data["begin"] == "before step 2" and not data["complete"]
    assert [0, data["columns"].index("output[1]"), "1"] in data["start"]


def test_fused_operations_pass_on_what_arrives():
    rows = [dict(op="send", rank=0, peer=1, buffer="data", chunk=0, step=0),
            dict(op="reduce_recv", rank=1, peer=0, buffer=None, from_buffer="data", from_chunk=0, step=0),
            dict(op="send", rank=1, peer=2, buffer=None, of=1, step=0),
            dict(op="recv", rank=2, peer=1, buffer="data", chunk=0, step=0)]
    table = allreduce(rows, 3)
    plan = timeline(table, walk(table))
    assert [chip.kind for chip in plan.chips] == ["send", "pass", "recv"]
    assert [arrow.back for arrow in plan.arrows] == [False, True]
    assert "passed on, not stored here" in "".join(drawn(table).itertext())


def test_no_steps_and_no_operations():
    for table in (ring(1), table_from_rows([], ranks=3, chunks=1, collective=Collective("barrier"),
                                           buffers=[Buffer("data", 1, role="data")])):
        assert "no steps" in "".join(drawn(table).itertext())
        assert Page(html(table, walk(table))).data["steps"] == []


def test_events_are_marked_where_they_are_passed():
    table = table_of((ROOT / "examples/broadcast/staged_chain.sched").read_text(), 3, k=2)
    plan = timeline(table, walk(table))
    assert len(plan.marks) == np.isin(table.op, (Op.RECORD, Op.WAIT)).sum()
    assert len(plan.links) == (table.op == Op.WAIT).sum()
    assert all(begin.records and not end.records and begin.step <= end.step for begin, end in plan.links)


# ---- what is wrong -------------------------------------------------------------------------------------------------


FAULTS = {
    "cycle_send_then_recv": (4, "SL305", "recv"),
    "down_overtakes_up": (2, "SL401", "send"),
    "reduced_twice": (4, "SL502", "reduce"),
    "missing": (4, "SL501", "reduce"),
    "unmatched_recv": (3, "SL302", "stuck"),
    "wait_closes_a_cycle": (2, "SL305", "stuck"),
    "conflicting_writes": (4, "SL402", "recv"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_is_told_and_marked(name):
    ranks, code, kind = FAULTS[name]
    table = table_of((ROOT / "tests" / "cases" / f"{name}.sched").read_text(), ranks)
    root = drawn(table)
    said = "".join(root.itertext())
    assert f"1. {code} " in said and "part of finding 1" in said
    assert having(root, "bad", kind)
    findings = verify(table).diagnostics
    page = Page(html(table, walk(table), None, findings))
    assert f"error {code}" in page.text and findings[0].message.replace("`", "") in page.text
    assert re.search(r"(step \d|for ever)", page.text.partition(code)[2])
    assert f"1. {code}" not in page.text, "in a page the findings stand above the drawing, not in it"


def test_operations_that_wait_for_ever_have_a_column_of_their_own():
    rows = [dict(op="recv", rank=0, peer=1, buffer="data", chunk=0, step=0),
            dict(op="wait", rank=1, event="e", step=0),
            dict(op="send", rank=1, peer=0, buffer="data", chunk=0, step=1)]
    table = allreduce(rows, 2)
    stuck = having(drawn(table), "stuck")
    assert ["".join(e.find(f"{SVG}text").itertext()) for e in stuck] == ["recv data[0] from 1", "wait e"]
    (last,) = Page(html(table, walk(table))).data["steps"]
    assert last["name"] == "for ever" and len(last["operations"]) == 2


def test_a_wrong_result_is_marked_in_the_table_of_the_page():
    table = table_of((ROOT / "tests/cases/missing.sched").read_text(), 4)
    data = Page(html(table, walk(table), None, verify(table).diagnostics)).data
    ((rank, column, why),) = data["wrong"]
    assert (rank, data["columns"][column]) == (0, "data[0]") and "rank 3" in why


def test_a_finding_without_a_place_is_told():
    table = table_of((ROOT / "tests/cases/barrier_without_steps.sched").read_text(), 3)
    assert "takes no part" in "".join(drawn(table).itertext())
    assert "takes no part" in Page(html(table, walk(table), None, verify(table).diagnostics)).text


# ---- text from outside ---------------------------------------------------------------------------------------------


HOSTILE = "</script><img src=x onerror='alert(1)'>\"&]]>\x00\x1b\u202e\ufffe\ud800<!--"


def test_names_from_outside_stay_text():
    table = allreduce([dict(op="send", rank=0, peer=1, buffer="data", chunk=0, step=0),
                       dict(op="recv", rank=1, peer=0, buffer=HOSTILE, chunk=0, step=0)], 2, scratch=[(HOSTILE, 1)])
    table = replace(table, name=HOSTILE, streams=(HOSTILE,),
                    sites=tuple(replace(site, names=(HOSTILE,), values=(3,)) for site in table.sites))
    text = svg(table, walk(table), None, verify(table).diagnostics)
    assert ET.fromstring(text).find(f"{SVG}title").text.startswith("</script><img src=x onerror")
    text.encode()
    text = html(table, walk(table), None, verify(table).diagnostics)
    text.encode()
    page = Page(text)
    assert text.count("</script") == 2 == page.tags["script"] and page.tags["img"] == 0
    assert any(name.startswith("</script><img src=x") for name in page.data["columns"])


def test_source_text_stays_text():
    hostile = "</script><script>alert(1)</script>"
    table = table_of(f'schedule pair(ranks):\n    """{hostile}"""\n    collective broadcast(0)\n'
                     "    for r in 1..ranks:\n        send data[0] from 0 to r\n", 3)
    text = html(table, walk(table), None, ())
    page = Page(text)
    assert text.count("</script") == 2 and hostile in page.data["sources"][0]["lines"][1]
    assert page.data["steps"][0]["lines"] == [[0, 5]]


def test_a_page_fetches_nothing_and_is_not_large():
    text = html(ring(8), walk(ring(8)), None, ())
    assert len(text.encode()) < 200_000
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text) and "@import" not in text and "url(" not in text


def test_sources_of_other_files_are_shown_too(monkeypatch):
    monkeypatch.chdir(ROOT)
    program = load_program("examples/reduce_scatter/ring.sched")
    table, _ = expand(program, "ring_reduce_scatter", ranks=3, params={"inplace": True})
    data = Page(html(table, walk(table), None, ())).data
    assert [Path(source["path"]).name for source in data["sources"]] == ["ring.sched", "ring.sched"]
    assert all({file for file, _ in step["lines"]} == {0, 1} for step in data["steps"])


def test_operations_without_a_place_have_no_source():
    table = replace(ring(3), sites=tuple(Site(None, s.names, s.values) for s in ring(3).sites))
    assert Page(html(table, walk(table), None, ())).data["sources"] == []


# ---- the command ---------------------------------------------------------------------------------------------------


def test_the_command_draws(tmp_path, capsys, monkeypatch, shipped):
    monkeypatch.setenv("FORCE_COLOR", "1")
    for form, start in (("svg", "<?xml"), ("html", "<!DOCTYPE html>")):
        assert main(["show", str(shipped), "--ranks", "3", "--format", form]) == 0
        out = capsys.readouterr().out
        assert out.startswith(start)
        assert main(["show", str(shipped), "--ranks", "3", "--format", form, "-o", str(tmp_path / "x")]) == 0
        assert capsys.readouterr().out == "" and (tmp_path / "x").read_text() == out
    assert main(["show", str(shipped), "--ranks", "3", "-o", str(tmp_path / "x.txt")]) == 0
    assert (tmp_path / "x.txt").read_text().startswith("ring: allreduce on 3 ranks")


def test_a_faulty_schedule_is_drawn_with_status_0(capsys):
    for form in ("svg", "html"):
        assert main(["show", str(ROOT / "tests/cases/reduced_twice.sched"), "--ranks", "4", "--format", form]) == 0
        assert "SL502" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["svg", "html"])
def test_what_nobody_could_read_is_refused(form, tmp_path, capsys, shipped):
    target = tmp_path / "large"
    assert main(["show", str(shipped), "--ranks", "40", "--format", form, "-o", str(target)]) == 2
    err = capsys.readouterr().err
    assert "SL208" in err and "--steps A..B" in err and not target.exists()
    assert main(["show", str(shipped), "--ranks", "40", "--steps", "0..2", "--format", form, "-o", str(target)]) == 0
    assert main(["show", str(shipped), "--ranks", "3", "--rank", "1", "--format", form]) == 2
    assert "as text only" in capsys.readouterr().err
    assert main(["show", str(shipped), "--ranks", "3", "--format", form, "-o", str(tmp_path / "no" / "x")]) == 2


def test_the_layout_refuses_what_is_too_large():
    table = ring(50)
    with pytest.raises(TooLarge, match="too many for a readable picture"):
        timeline(table, walk(table))
    assert len(timeline(table, walk(table), range(3)).arrows) == 150


# ---- any table -----------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.one_of(tables(), arbitrary_tables()))
def test_whatever_is_a_table_can_be_drawn(table):
    walked, findings = walk(table), verify(table).diagnostics
    root = drawn(table)
    assert len(having(root, "stuck")) == len(walked.stuck)
    assert len([e for e in having(root, "arrow") if not {"away"} & set(e.get("class").split())]) == len(
        [row for row in walked.sender if any(row in step.rows for step in walked.rounds)])
    assert Page(html(table, walked, None, findings)).data["complete"]
