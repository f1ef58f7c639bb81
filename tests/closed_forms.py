"""What the tests of closed forms share: a shipped schedule's verdict, and its figures as numbers."""

from fractions import Fraction
from pathlib import Path

from schedlang.expand import expand, load_program
from schedlang.verify import Verdict, verify

EXAMPLES = Path(__file__).parents[1] / "examples"


def log(p: int) -> int:
    """log2 p, rounded up."""
    return (p - 1).bit_length()


def verdict(file: str, ranks: int | None = None, **params: object) -> Verdict:
    """The verdict on the schedule that ``examples/FILE`` is named for."""
    program = load_program(str(EXAMPLES / file))
    table, findings = expand(program, program.main(None), ranks=ranks, params=params)
    assert table is not None, findings
    return verify(table)


def share(v: Verdict, fact: str) -> Fraction:
    """A number of bytes among the facts, in vectors: 7/4 of ``7/4 n``."""
    return Fraction(v.facts[fact].removesuffix("n").strip() or 1)


def bytes_sent(v: Verdict) -> Fraction:
    """The most bytes a rank sends, in vectors."""
    return share(v, "sent_most")
