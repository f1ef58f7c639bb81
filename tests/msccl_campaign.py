"""Damaged MSCCL files, each judged by reader, table and ``verify``, by the machine of ``tests/msccl_machine.py`` and by
the interpreter: ``python -m tests.msccl_campaign --count 2000``.

Bases are the small files of ``tests/msccl_bases.py``, sequences of moves drawn at random, and the smaller real files
where they are there; a mutant has one mutation, now and then two. Prints how many there were, by mutation, by verdict
and by base, and every disagreement, made small.
"""

from __future__ import annotations

import gzip
import itertools
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from xml.etree.ElementTree import Element

from schedlang import lift
from schedlang.diagnostics import SchedError, Severity
from schedlang.expand import expand, load_text
from schedlang.ir.table import OpTable
from schedlang.msccl.table import placements, table
from schedlang.msccl.xml import loads
from schedlang.verify import Sends, Verdict, verify
from tests import msccl_machine
from tests.campaign import run
from tests.comparison import MODELS, Comparison, compare
from tests.msccl_bases import BASES, moves
from tests.msccl_mutants import MUTATIONS, Draft, mutate

REAL = Path(__file__).parent.parent.parent / "shared" / "cases" / "msccl"
SMALLER = ("a2a2ll", "ag-1m", "ag_hier_4_LL", "ag_hier_4_Simple", "ar_tree_12_LL", "ar_hier_12_Simple",
           "alltoall-8n-0-9kb", "r48ll")
LARGER = ("ap2ll", "ag-32m-1g", "alltoall-8n-7mb-43mb", "ap-1pass", "allreduce-allpairs-8n-ll-32tb",
          "all-reduce-ring-ll")

ILLEGAL = {"SL108", "SL221"}
MATCHING, VALUES = {"SL301", "SL302"}, {"SL501", "SL502", "SL503", "SL504"}
INTERPRETED = 1500
"""Rows of the largest table that the interpreter runs: it takes its time."""


def real_files(names: Sequence[str] = SMALLER) -> dict[str, str]:
    """Real files by name, as text; those that are there."""
    return {name: gzip.decompress(path.read_bytes()).decode()
            for name in names if (path := REAL / f"{name}.xml.gz").is_file()}


# One file -----------------------------------------------------------------------------------------------------------


def judge(text: str, seed: int = 0, models: Sequence[str] = MODELS) -> Comparison:
    """What all say of a file, in both placements. ``seed`` draws interleavings, and one of ``models`` of buffering, by
    which the interpreter judges the tables; without models it judges none."""
    try:
        file = msccl_machine.read(text)
    except msccl_machine.Illegal as e:
        return _illegal(text, str(e), ILLEGAL)
    if file.lacking:
        overlaps = any(msccl_machine.overlaps(file, inplace) for inplace in file.placements)
        return _illegal(text, "only the root has that buffer", {*ILLEGAL, *["SL401"] * overlaps})
    words = []
    for inplace in file.placements:
        found = _judge_placement(text, file, inplace, seed, models)
        words.append(found.verdict)
        if found.disagreement is not None:
            return Comparison(found.verdict, f"{'in' if inplace else 'out of'} place: {found.disagreement}")
    return Comparison(next((w for w in words if w != "clean"), "clean"))


def _illegal(text: str, why: str, codes: set[str]) -> Comparison:
    """A file that breaks a rule is refused, with codes of these."""
    refused = _refused(text)
    wrong = None if refused <= codes and refused else f"illegal, as {why}; schedlang: {sorted(refused) or 'legal'}"
    return Comparison("illegal", wrong)


def _refused(text: str) -> set[str]:
    """The codes by which a file is refused, or its tables."""
    try:
        plan = loads(text, "mutant.xml")
        verdicts = [verify(table(plan, way)) for way in placements(plan)]
    except SchedError as e:
        assert all(d.location is not None and d.message for d in e.diagnostics)
        return {d.code for d in e.diagnostics}
    return {d.code for verdict in verdicts for d in verdict.diagnostics} & ILLEGAL


def _judge_placement(text: str, file: msccl_machine.File, inplace: bool, seed: int,
                     models: Sequence[str]) -> Comparison:
    found = msccl_machine.judge(file, inplace, seed)
    try:
        plan = loads(text, "mutant.xml")
        made = table(plan, inplace)
    except SchedError as e:
        codes = {d.code for d in e.diagnostics}
        if found.overlaps and codes == {"SL401"}:
            return Comparison(found.word)
        return Comparison(found.word, f"{found.word}, but refused: {e.diagnostics[0].code} {e.diagnostics[0].message}")
    if placements(plan) != file.placements:
        return Comparison(found.word, f"for use in {file.placements}, not {placements(plan)}")
    verdict = verify(made)
    codes = {d.code for d in verdict.diagnostics if d.severity == Severity.ERROR}
    wrong = _differs(found, codes, verdict.facts)
    if wrong is None and models and len(made) <= INTERPRETED:
        wrong = _interpreted(made, random.Random(seed).choice(models), seed)
    return Comparison(found.word, None if wrong is None else f"{wrong}; verify says {sorted(codes) or 'clean'}")


def _interpreted(made: OpTable, model: str, seed: int) -> str | None:
    wrong = compare(made, model, seed).disagreement
    return None if wrong is None else f"the interpreter: {wrong}"


def _differs(found: msccl_machine.Outcome, codes: set[str], facts: Mapping[str, object]) -> str | None:
    """Where the machine and ``verify`` differ, in a sentence. Each property counts where those before it hold."""
    if found.overlaps:
        return "a step overlaps itself"
    for name, holds, mine, besides in (
            ("never", found.never, {"SL306"}, set[str]()),
            ("unmatched", found.unmatched, MATCHING, {"SL303", "SL305"}),
            ("mismatched", found.mismatched, {"SL303"}, {"SL305"})):
        if holds != bool(codes & mine) or (holds and codes - mine - besides):
            return f"{name} is {holds}"
        if holds:
            return None
    if found.hangs != ("SL305" in codes):
        return f"hangs is {found.hangs}"
    if not all(found.least):
        return None
    for name, least in (("least_depth", found.least[1]), ("least_depth_whole", found.least[0])):
        known = facts.get(name, facts.get("least_depth"))
        if not isinstance(known, int) or max(known, 1) != least:
            return f"{name} is {least}, and {known} to verify"
    if found.races != ("SL401" in codes):
        return f"races is {found.races}"
    if found.races:
        return None
    if found.uninitialised != ("SL403" in codes):
        return f"uninitialised is {found.uninitialised}"
    if found.uninitialised:
        return None
    if found.wrong != bool(codes & VALUES):
        return f"wrong is {found.wrong}"
    if codes - VALUES - {"SL305"}:
        return "there is something else"
    if not found.wrong and found.agreement != facts.get("agreement"):
        return f"agreement is {found.agreement}, and {facts.get('agreement')} to verify"
    return None


def as_source(text: str) -> Iterator[tuple[Verdict, Verdict]]:
    """The verdict on each table of a file, and that on its source, read again, with the ``--sends`` that its protocol
    is; of files that can be read, and of tables that have source."""
    try:
        plan = loads(text, "mutant.xml")
        tables = [table(plan, way) for way in placements(plan)]
    except SchedError:
        return
    for made in tables:
        try:
            program = load_text(lift.source(made))
        except SchedError as why:
            assert [d.code for d in why.diagnostics] == ["SL808"], why
            continue
        again, _ = expand(program, program.main(None))
        assert again is not None and again.transport is None
        yield verify(made), verify(again, sends=Sends.parse(plan.proto))


# Many ---------------------------------------------------------------------------------------------------------------


@dataclass
class Figures:
    """What a campaign came to. ``kinds``: mutants by mutation. ``bases``: by the file they are made of. ``verdicts``:
    by what is wrong with them. ``void``: mutations that found nothing to change. ``disagreements``: (base, mutations,
    sentence, smallest file that shows it)."""

    kinds: Counter[str] = field(default_factory=Counter)
    bases: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    void: int = 0
    disagreements: list[tuple[str, str, str, str]] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{self.verdicts.total()} mutants, {len(self.disagreements)} disagreements"
        yield "by mutation: " + ", ".join(f"{k} {n}" for k, n in self.kinds.most_common())
        yield "by verdict: " + ", ".join(f"{k} {n}" for k, n in self.verdicts.most_common())
        yield "by base: " + ", ".join(f"{k} {n}" for k, n in self.bases.most_common())
        for base, kinds, sentence, text in self.disagreements:
            yield f"\n{base}, {kinds}: {sentence}\n{text}"


def campaign(count: int, seed: int, real: Mapping[str, str]) -> Figures:
    """Judge ``count`` mutants: of the own files, of random ones, and of ``real`` ones, a third each."""
    figures, rng = Figures(), random.Random(seed)
    for name, chosen, mutant in mutants(rng, real):
        if mutant is None:
            figures.void += 1
            continue
        at = rng.randrange(1 << 30)
        judged = judge(mutant, at)
        figures.kinds.update(chosen)
        figures.bases[name] += 1
        figures.verdicts[judged.verdict] += 1
        if judged.disagreement is not None:
            small = shrink(mutant, lambda t, s=at: judge(t, s).disagreement is not None)  # type: ignore[misc]
            sentence = judge(small, at).disagreement or judged.disagreement
            figures.disagreements.append((name, "+".join(chosen), sentence, small))
        if figures.verdicts.total() == count:
            break
    return figures


def mutants(rng: random.Random, real: Mapping[str, str]) -> Iterator[tuple[str, list[str], str | None]]:
    """Damaged files without end, of own files, of random ones, and of ``real`` ones, a third each: the name of the
    base, the mutations, and the text; None where they found nothing to change."""
    own, kinds = [(name, make()) for name, make in BASES.items()], list(MUTATIONS)
    for turn in itertools.count(1):
        # Files and kinds in turn, so that each has its share; a second kind is drawn.
        if turn % 3 == 0 and real:
            name, text = list(real.items())[turn // 3 % len(real)]
        elif turn % 3 == 1:
            name, text = "moves drawn at random", moves(rng)
        else:
            name, text = own[turn // 3 % len(own)]
        if turn % len(kinds) == 0:
            rng.shuffle(kinds)
        chosen = [kinds[turn % len(kinds)], *rng.choices(kinds, k=rng.choice([0, 0, 0, 0, 1]))]
        mutant: str | None = text
        for kind in chosen:
            mutant = None if mutant is None else mutate(mutant, kind, rng)
        yield name, chosen, mutant


def shrink(text: str, fails: Callable[[str], bool], tries: int = 300) -> str:
    """A small file for which ``fails`` holds as well: blocks, messages and steps are left out, many at once, then one
    after another, as long as it does. ``tries``: how many files are tried."""
    for parts in (_of_blocks, _of_messages, _of_steps, _of_messages, _of_steps, _of_empty):
        size = max(1, len(parts(Draft(text, random.Random(0)))) // 2)
        at = 0
        while tries:
            found = parts(draft := Draft(text, random.Random(0)))
            if at >= len(found):
                if size == 1:
                    break
                size, at = size // 2, 0
                continue
            tries -= 1
            for remove in found[at:at + size]:
                remove()
            candidate = draft.finish()
            if candidate != text and fails(candidate):
                text = candidate
            else:
                at += size
    return text


def _of_blocks(draft: Draft) -> list[Callable[[], None]]:
    """What empties each block."""
    return [partial(tb.__setitem__, slice(None), []) for tb in draft.blocks() if len(tb)]


def _of_messages(draft: Draft) -> list[Callable[[], None]]:
    """What removes both ends of each message."""
    return [partial(_remove, *ends) for ends in draft.messages()]


def _of_steps(draft: Draft) -> list[Callable[[], None]]:
    """What removes each step."""
    return [partial(_remove, end) for end in draft.steps()]


def _of_empty(draft: Draft) -> list[Callable[[], None]]:
    """What removes each block without steps; those after it move up."""
    def remove(gpu: Element, tb: Element) -> None:
        gpu.remove(tb)
        for number, other in enumerate(gpu.findall("tb")):
            other.set("id", str(number))

    return [partial(remove, gpu, tb) for gpu in draft.gpus for tb in gpu.findall("tb") if not len(tb)]


def _remove(*ends: tuple[Element, Element]) -> None:
    for tb, step in ends:
        if step in list(tb):
            tb.remove(step)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. 1 where there was a disagreement."""
    return run("tests.msccl_campaign", 2000, lambda count, seed: campaign(count, seed, real_files()), arguments)


if __name__ == "__main__":
    sys.exit(main())
