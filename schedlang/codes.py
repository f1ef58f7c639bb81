"""Every finding schedlang can make: its code, its name, and what `schedlang explain` says of it.

``exit``: 1 where the finding says that a schedule is faulty, 2 where the input could not be used. Codes never change
their meaning; a new finding gets a new code.
"""

from __future__ import annotations

from dataclasses import dataclass

FAULTY, UNUSABLE = 1, 2


@dataclass(frozen=True, slots=True)
class Code:
    code: str
    name: str
    exit: int
    summary: str
    detail: str
    mend: str


_ALL = (
    # 1xx: the text
    Code("SL101", "syntax-error", UNUSABLE, "The text is not a schedule.", "", ""),
    Code("SL102", "bad-indentation", UNUSABLE, "A block's lines do not line up.", "", ""),
    Code("SL103", "bad-character", UNUSABLE, "A character or literal that the language does not have.", "", ""),
    Code("SL104", "too-deep", UNUSABLE, "The text nests deeper than can be read.", "", ""),
    Code("SL105", "unreadable", UNUSABLE, "The file cannot be read as text.", "", ""),
    Code("SL106", "import-failed", UNUSABLE, "An imported file cannot be found, or imports in a circle.", "", ""),
    Code("SL107", "bad-table", UNUSABLE, "An op table in JSON breaks the rules of the format.", "", ""),
    # 2xx: names, values, structure
    Code("SL201", "unknown-name", UNUSABLE, "A name that nothing binds.", "", ""),
    Code("SL202", "duplicate-name", UNUSABLE, "A name is bound twice where only one binding is allowed.", "", ""),
    Code("SL203", "wrong-type", UNUSABLE, "A value of the wrong kind: a list where an integer is needed, and the like.", "", ""),
    Code("SL204", "misplaced-statement", UNUSABLE, "A statement stands where it has no meaning.", "", ""),
    Code("SL205", "bad-declaration", UNUSABLE, "The collective, ranks, chunks or buffers are missing, repeated or do not fit.", "", ""),
    Code("SL206", "bad-parameter", UNUSABLE, "A parameter is missing, unknown or has a value of the wrong kind.", "", ""),
    Code("SL207", "requirement-failed", UNUSABLE, "A `require` of the schedule does not hold for these values.", "", ""),
    Code("SL208", "too-large", UNUSABLE, "The expansion has more rows or loop turns than --max-ops allows.", "", ""),
    Code("SL209", "recursion", UNUSABLE, "A function or schedule recurses too deep.", "", ""),
    Code("SL210", "bad-use", UNUSABLE, "A `use` does not fit the schedule it uses.", "", ""),
    Code("SL211", "no-reverse", UNUSABLE, "A schedule that has no reverse.", "", ""),
    Code("SL212", "no-such-schedule", UNUSABLE, "The file has no schedule of that name, or does not say which of several is meant.", "", ""),
    Code("SL221", "out-of-bounds", FAULTY, "An index or slice reaches outside its buffer or list.", "", ""),
    Code("SL222", "bad-rank", FAULTY, "A rank outside 0..ranks.", "", ""),
    Code("SL223", "arithmetic", FAULTY, "Division by zero, a negative shift, log2 below 1, or a value beyond 64 bits.", "", ""),
    Code("SL224", "self-transfer", FAULTY, "A rank sends to itself.", "", ""),
    # 3xx: order between operations
    Code("SL301", "unmatched-send", FAULTY, "A send that no receive takes.", "", ""),
    Code("SL302", "unmatched-receive", FAULTY, "A receive that no send serves.", "", ""),
    Code("SL303", "size-mismatch", FAULTY, "A send and its receive differ in size.", "", ""),
    Code("SL304", "ambiguous-connection", FAULTY, "Two streams use one end of a connection in no settled order.", "", ""),
    Code("SL305", "deadlock", FAULTY, "Operations wait for each other in a circle.", "", ""),
    Code("SL306", "never-recorded", FAULTY, "A wait for an event that is never recorded.", "", ""),
    Code("SL307", "recorded-twice", FAULTY, "An event is recorded a second time.", "", ""),
    Code("SL308", "not-a-barrier", FAULTY, "A rank can leave the barrier before another has entered.", "", ""),
    # 4xx: memory
    Code("SL401", "race", FAULTY, "Two streams of a rank access one location in no settled order, one of them writing.", "", ""),
    Code("SL402", "conflicting-writes", FAULTY, "One step writes a location twice, not only by reductions.", "", ""),
    Code("SL403", "uninitialised-read", FAULTY, "An operation reads memory that nothing has written.", "", ""),
    # 5xx: values
    Code("SL501", "missing-contribution", FAULTY, "A result lacks a rank's contribution.", "", ""),
    Code("SL502", "repeated-contribution", FAULTY, "A result holds a contribution more than once.", "", ""),
    Code("SL503", "foreign-contribution", FAULTY, "A result holds something that does not belong there.", "", ""),
    Code("SL504", "missing-result", FAULTY, "A location of the result is never written.", "", ""),
    Code("SL505", "disagreement", FAULTY, "Ranks combine the same contributions in different orders, so their bits may differ.", "", ""),
    # 6xx: warnings and notes
    Code("SL601", "stream-used-once", FAULTY, "A stream symbol that occurs once only; perhaps a typing slip.", "", ""),
    Code("SL602", "shorter-part", FAULTY, "A move into a part that is shorter for some element counts.", "", ""),
    Code("SL603", "staging-copy", FAULTY, "A step both reads and writes a location, so a back end keeps a copy.", "", ""),
    Code("SL604", "input-written", FAULTY, "The schedule writes its input; back ends work on a copy.", "", ""),
    # 8xx: running
    Code("SL801", "bad-input", UNUSABLE, "The arrays given do not fit the schedule.", "", ""),
    Code("SL802", "bad-size", UNUSABLE, "The element count does not fit the schedule.", "", ""),
    Code("SL803", "bad-dtype", UNUSABLE, "The dtype is unknown, or the operator is not defined for it.", "", ""),
    Code("SL804", "no-backend", UNUSABLE, "The back end is unknown or cannot run here.", "", ""),
    Code("SL805", "wrong-result", FAULTY, "The result differs from the reference by more than the dtype's rounding.", "", ""),
    Code("SL806", "bad-option", UNUSABLE, "A command-line option or argument cannot be used.", "", ""),
    Code("SL807", "unwritable", UNUSABLE, "The output file cannot be written.", "", ""),
)

CODES: dict[str, Code] = {c.code: c for c in _ALL}
"""All codes, by code."""


def find(word: str) -> Code | None:
    """The code written ``word``: its code (any case) or its name."""
    return CODES.get(word.upper()) or next((c for c in _ALL if c.name == word.lower()), None)
