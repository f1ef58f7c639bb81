"""docs/runtimes.md shows what happens, and its table is that of the program."""

import re
from pathlib import Path

from generators import examples

from schedlang.msccl.phrases import size_text
from schedlang.msccl.runtimes import RUNTIMES
from tests.unit.test_docs import ROOT

PAGE = ROOT / "docs" / "runtimes.md"
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)


def test_the_page_shows_what_happens(tmp_path, update):
    text = PAGE.read_text(encoding="utf-8")

    def shown(fence):
        language, name, body = fence.groups()
        if name is not None:
            Path(name).write_text(body, encoding="utf-8")
        if language != "console":
            return fence[0]
        done = [examples._command(line) for line in body.splitlines() if line.startswith("$ ")]
        assert done
        return "```console\n" + "".join(f"{run.text}\n{run.output}\n" for run in done) + "```"

    with examples._inside(str(tmp_path)):
        made = FENCE.sub(shown, text)
    if update:
        PAGE.write_text(text := made, encoding="utf-8")
    assert made == text, "if this is meant: pytest tests/unit/test_docs_runtimes.py --update"


def test_the_table_is_that_of_the_program():
    table = {row[0]: row[1:] for row in (
        [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.count("|") == 5)}
    assert table[""] == [f"`{name}`" for name in RUNTIMES]

    def rows(say):
        return [say(runtime) for runtime in RUNTIMES.values()]

    def yes(name):
        return rows(lambda r: "yes" if getattr(r, name) else "no")

    for words, name in (("steps of a block", "steps"), ("blocks of a rank", "blocks"), ("channels", "channels"),
                        ("files", "files")):
        assert table[words] == rows(lambda r, name=name: f"{getattr(r, name):,}")
    assert table["rcs, rrc, rrs, rrcs"] == yes("fused")
    assert table["maxBytes belongs to the range"] == yes("last")
    assert table["maxBytes 0 is no limit"] == yes("endless")
    assert table["minBytes and maxBytes may be missing"] == rows(
        lambda r: "no" if r.range is None else f"yes: {r.range[0]} and {size_text(r.range[1])}")
    assert table["outofplace"] == rows(lambda r: "must be there" if r.both else "is not read: inplace says both")
    assert table["reduce-scatter is called"] == rows(
        lambda r: next(c for c in r.collectives if c.replace("_", "") == "reducescatter"))
    assert table["i_chunks and o_chunks have to fit nchunksperloop"] == rows(
        lambda r: "yes, unless 0" if r.chunks_agree else "no")
