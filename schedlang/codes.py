"""Every finding schedlang can make: its code, its name, and what `schedlang explain` says of it.

``exit``: 1 where the finding says that a schedule is faulty, 2 where the input could not be used. Codes never change
their meaning; a new finding gets a new code. In ``detail`` and ``mend``, indented lines are examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import cleandoc

FAULTY, UNUSABLE = 1, 2


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding. ``summary`` is a sentence, ``detail`` says what it means with a small example, ``mend`` what
    to do about it."""

    code: str
    name: str
    exit: int
    summary: str
    detail: str
    mend: str


def _code(code: str, name: str, exit: int, summary: str, detail: str, mend: str) -> Code:
    return Code(code, name, exit, summary, cleandoc(detail), cleandoc(mend))


_TEXT = (
    _code(
        "SL101", "syntax-error", UNUSABLE, "The text is not a schedule.",
        """
        The words do not form a statement of the language. The caret stands under the first one that cannot be
        there, and the message lists what could be:

            send data[0] from 0 rank 1        # expected "to"
        """,
        """
        Write what is expected at the caret. Where that looks right, look at the end of the line before: an open
        bracket or a forgotten ":" is often noticed only on the next line.
        """),
    _code(
        "SL102", "bad-indentation", UNUSABLE, "A block's lines do not line up.",
        """
        As in Python, the lines of a block start in one column, deeper than the header that opens the block:

            step:
                send data[0] from 0 to 1
              send data[1] from 1 to 0        # lines up with nothing
        """,
        """
        Indent the lines of a block alike, by four spaces; do not mix tabs and spaces. `schedlang fmt` does it
        for a file that parses.
        """),
    _code(
        "SL103", "bad-character", UNUSABLE, "A character or literal that the language does not have.",
        """
        Outside comments and strings, only letters, digits, underscores and the operators of the language occur.
        Strings stand in double quotes and end on the line they start on.

            let half = ranks / 2;             # neither "/" nor ";" exists
        """,
        """
        Integer division is "//", "and" and "or" are written out, statements end with their line. Copied text
        may bring typographic quotes or dashes along: type them anew.
        """),
    _code(
        "SL104", "too-deep", UNUSABLE, "The text nests deeper than can be read.",
        """
        Brackets, operators or blocks nest hundreds of levels deep, which no schedule that people write does;
        such a text usually comes from a faulty generator.
        """,
        """
        Name parts of the expression with `let` or `fn`, or use a loop.
        """),
    _code(
        "SL105", "unreadable", UNUSABLE, "The file cannot be read as text.",
        """
        The file does not exist, is a folder where a file is needed, may not be read, or is not UTF-8. A packed MSCCL
        file can be broken, or unpack to more than the 256 MiB that are read.
        """,
        """
        Check the path; relative paths start in the current folder, those of an `import` in the importing file's. Save
        the file as UTF-8.
        """),
    _code(
        "SL106", "import-failed", UNUSABLE, "An imported file cannot be found, or imports in a circle.",
        """
        The path of an `import` is taken from the folder of the file that imports:

            import "../allgather/ring.sched"

        Files that import each other in a circle are refused, since neither could be read first.
        """,
        """
        Mend the path, or move what two files need of each other into a third that both import. Schedules of the
        shipped library need no import.
        """),
    _code(
        "SL107", "bad-table", UNUSABLE, "An op table in JSON breaks the rules of the format.",
        """
        A table written by hand or by another program lacks a field, has one of the wrong type, or has values
        that cannot be: a step number with a gap before it, an operation unknown to the format, an id that is
        not its position.

            {"id": 3, "rank": 0, "stream": "main", "step": 0, "op": "send", "peer": 1}      # no buffer
        """,
        """
        The message names the row and the field. `schedlang compile FILE --target json` writes a table that is
        right, to compare with; the format is described under "The op table" in the documentation.
        """),
    _code(
        "SL108", "bad-msccl", UNUSABLE, "An MSCCL file breaks the rules of the format.",
        """
        The file is not XML, lacks something, or says what cannot be: an id twice or left out, a step that is not
        numbered by its place in the block, an unknown kind of step or buffer, a peer that there is not, a dependency
        on a step that there is not, two blocks that send on one connection:

            <tb id="0" send="1" recv="-1" chan="0"> ... </tb>
            <tb id="1" send="1" recv="-1" chan="0"> ... </tb>     # which of the two is first?

        Runtimes check some of this, refuse the file and use an algorithm of their own; the rest they do not check, and
        hang or compute something else. A DOCTYPE is refused, too: no such file needs one, and the entities that it may
        declare can grow without end.
        """,
        """
        The message names the attribute and what it may be. Where a program wrote the file, mend that program: what
        breaks these rules was not meant so.
        """),
)

_NAMES = (
    _code(
        "SL201", "unknown-name", UNUSABLE, "A name that nothing binds.",
        """
        The name is no parameter, loop variable, `let`, buffer, event, function or schedule that can be seen
        here. A `let` ends with its block, and a buffer of the collective exists only where the collective has
        it: `data` for allreduce, `input` and `output` for allgather.
        """,
        """
        Correct the spelling, declare scratch with `buffer NAME[CHUNKS]`, or move the `let` out to the block that both
        places share. The message lists what there is.
        """),
    _code(
        "SL202", "duplicate-name", UNUSABLE, "A name is bound twice where only one binding is allowed.",
        """
        `let` never rebinds, two parameters or buffers cannot share a name, and one name cannot come from two imports:

            let half = ranks // 2
            let half = half + 1               # `half` is bound already
        """,
        """
        Choose another name; a name bound by a `let` is free again after the block it stands in.
        """),
    _code(
        "SL203", "wrong-type", UNUSABLE,
        "A value of the wrong kind: a list where an integer is needed, and the like.",
        """
        Values are integers, booleans, lists of those, and matrices. Integers and booleans are not mixed:

            send data[r == 0] from r to 1     # an index is an integer, not a boolean
        """,
        """
        Convert by hand: `1 if r == 0 else 0`; `xs[i]` for one element of a list.
        """),
    _code(
        "SL204", "misplaced-statement", UNUSABLE, "A statement stands where it has no meaning.",
        """
        Some statements belong in some places only: `recv` inside `on RANK:`, `from` outside of it, no `step`, `use`,
        `record` or `wait` inside a `step:`, declarations at the top of a schedule.

            step:
                record ready on r             # a record is a step of its own
        """,
        """
        Move the statement out of the block that forbids it; the message names the block.
        """),
    _code(
        "SL205", "bad-declaration", UNUSABLE,
        "The collective, ranks, chunks or buffers are missing, repeated or do not fit.",
        """
        A schedule has exactly one `collective`, at most one `ranks` and one `chunks`, both at least 1; blocked
        collectives (allgather, reduce_scatter, gather, scatter, alltoall) need `chunks` to be a multiple of
        `ranks`. An all-to-all cannot be in place, and a root lies in 0..ranks.
        """,
        """
        Mend the declaration that the message names, for example `chunks ranks * channels`.
        """),
    _code(
        "SL206", "bad-parameter", UNUSABLE, "A parameter is missing, unknown or has a value of the wrong kind.",
        """
        Every parameter without a default needs a value, from `--ranks`, from `-p NAME=VALUE`, or from the schedule's
        `verify` line; only `verify` takes the number of ranks from there. Where the schedule computes its size (`ranks
        nodes * gpus`), `--ranks 8` picks those values of the `verify` line that give 8 ranks. An op table in JSON
        and an MSCCL file are expanded already and take no other values than those that they are for.
        """,
        """
        Give the value (`-p gpus=4`), correct its name, or add values to the `verify` line:

            verify nodes in 1..4, gpus in [2, 4]
        """),
    _code(
        "SL207", "requirement-failed", UNUSABLE, "A `require` of the schedule does not hold for these values.",
        """
        The author restricts what the schedule is for:

            require is_pow2(ranks), "needs a power of two"

        Where several sizes are verified, sizes that the schedule does not support are skipped; it is an error when no
        size is left, or when the one size asked for fails. Where the root of a collective is a parameter, as in
        `collective broadcast(root)`, its value has to be a rank without a `require` that says so.
        """,
        """
        Choose values that fulfil the requirement, or another schedule.
        """),
    _code(
        "SL208", "too-large", UNUSABLE, "The expansion has more rows or loop turns than --max-ops allows.",
        """
        Expanding stops before it takes all memory: at most 2^28 operations and loop turns. Often a loop's bound
        is not what was meant, such as `0..2 ** ranks`. It also stops, and so does verifying, where even the least
        memory that this many operations take is not available.
        """,
        """
        Check the loop bounds; if the size is meant, raise the limit with `--max-ops N`. For want of memory take fewer
        ranks or chunks, or a machine with more.
        """),
    _code(
        "SL209", "recursion", UNUSABLE, "A function or schedule recurses too deep.",
        """
        A function may call itself 1,000 levels deep, and a schedule may not use itself, directly or through others.

            fn sum_to(n) = n + sum_to(n - 1)  # never ends: there is no case for n == 0
        """,
        """
        Give the recursion an end: `0 if n == 0 else n + sum_to(n - 1)`.
        """),
    _code(
        "SL210", "bad-use", UNUSABLE, "A `use` does not fit the schedule it uses.",
        """
        `use S(args) on RANKS for SLICE` places a schedule: the list of ranks has as many entries as S has
        ranks, none twice, all in 0..ranks; the chunks of the slice are a multiple of those of S; every buffer
        that S has exists here under its name, or is bound by `for`.
        """,
        """
        Compare the two sides that the message names. `for input=data[0:4], output=data[4:8]` binds buffers of
        other names.
        """),
    _code(
        "SL211", "no-reverse", UNUSABLE, "A schedule that has no reverse.",
        """
        `reversed` runs a schedule backwards, copies becoming sums and sums copies. That is possible only where
        a copy goes to a place that nothing had written before, and a value that was summed away is not used
        afterwards: what a copy overwrites cannot be brought back.
        """,
        """
        The message names the line that stands in the way. Let that copy go to scratch of its own, or write the
        reverse out by hand.
        """),
    _code(
        "SL212", "no-such-schedule", UNUSABLE,
        "The file has no schedule of that name, or does not say which of several is meant.",
        """
        `run`, `show` and `compile` take one schedule: the one named like the file, else the only one of the file.
        """,
        """
        Name it: `schedlang run parts.sched::ring_all_gather`.
        """),
    _code(
        "SL221", "out-of-bounds", FAULTY, "An index or slice reaches outside its buffer or list.",
        """
        A buffer of n chunks has the chunks 0..n, that is 0 to n - 1. Nothing wraps round by itself, and a
        slice's end may not lie before its start.

            send data[r + 1] from r to p      # r = 7, and data has 8 chunks
        """,
        """
        The note gives the loop values. Round a ring it is `(r + 1) % ranks`; at an end, a trailing `if r + 1 <
        ranks`.
        """),
    _code(
        "SL222", "bad-rank", FAULTY, "A rank outside 0..ranks.",
        """
        Ranks count from 0. In a chain or tree the last rank has no next one:

            send data[0] from r to r + 1      # r = ranks - 1
        """,
        """
        End the loop earlier (`for r in 0..ranks - 1`), wrap round (`% ranks`) or add a trailing `if`.
        """),
    _code(
        "SL223", "arithmetic", FAULTY,
        "Division by zero, a negative shift, log2 below 1, or a value beyond 64 bits.",
        """
        Integers have 64 bits and never wrap round silently; `log2` is defined from 1 on, shift counts and
        exponents from 0.

            let d = 1 << (s - 1)              # s = 0
        """,
        """
        The note gives the loop values at which it happens. A branch that is not taken is not computed:
        `1 << (s - 1) if s > 0 else 0` is fine.
        """),
    _code(
        "SL224", "self-transfer", FAULTY, "A rank sends to itself.",
        """
        A transfer goes between two ranks. Often the sum for the peer comes back to where it started, as
        `(r + s) % ranks` does for s = 0.
        """,
        """
        Start the loop at 1, add `if p != r`, or, where the data is to be moved within the rank, write
        `copy X into Y on r`.
        """),
)

_ORDER = (
    _code(
        "SL301", "unmatched-send", FAULTY, "A send that no receive takes.",
        """
        Inside `on RANK:` sends and receives are written one by one. Along one connection (source, destination,
        channel) they match in order, first to first; this send is left over.

            on 0: send data[0] to 1           # rank 1 has no recv from 0 left for it
        """,
        """
        Add `recv ... from` on the other rank, on the same channel (that is the stream, unless `chan` names
        another); or write the pair as one statement: `send X from r to p`.
        """),
    _code(
        "SL302", "unmatched-receive", FAULTY, "A receive that no send serves.",
        """
        Along one connection (source, destination, channel) sends and receives match in order; for this receive
        there is no send, so it would wait for ever. Where both exist, they may be on different streams:

            stream a: send data[0] to 1       # on rank 0: channel a
            stream b: recv data[0] from 0     # on rank 1: channel b
        """,
        """
        Add the send on the other rank, or give both ends one channel with `chan`.
        """),
    _code(
        "SL303", "size-mismatch", FAULTY, "A send and its receive differ in size.",
        """
        What leaves must fill what receives it: both sides move the same number of chunks. If the sizes look
        right, the pairing may be shifted: a receive that comes too early or too late takes its neighbour's
        message.
        """,
        """
        Compare the two places of the message. If a rank's previous and next rank are the same one (2 ranks),
        messages of both directions share the connection: post them in the order the other side sends them, or
        separate them by `chan`.
        """),
    _code(
        "SL304", "ambiguous-connection", FAULTY,
        "Two streams use one end of a connection in no settled order.",
        """
        With `chan`, several streams may send or receive on one connection. Which message is first then depends
        on timing, and so does who receives what.
        """,
        """
        Give each stream a channel of its own (leave `chan` out), or order the two by `record` and `wait`.
        """),
    _code(
        "SL305", "deadlock", FAULTY, "Operations wait for each other in a circle.",
        """
        A step is done when all its operations are, and a stream goes on only then. Without buffers, a send is
        done when its receive is posted. So if every rank sends first and receives afterwards, all wait:

            on r:
                step: send data[0] to (r + 1) % ranks
                step: recv data[1] from (r - 1) % ranks

        The notes list the circle, operation by operation. An MSCCL file is judged with the messages that its protocol
        has in flight on a connection: 8 with LL and LL128, 2 with Simple.
        """,
        """
        Post the two in one `step:`, let even ranks send first and odd ranks receive first, or put them on two
        streams. If the transport buffers N messages per connection, `--sends buffered=N` judges by that.
        """),
    _code(
        "SL306", "never-recorded", FAULTY, "A wait for an event that is never recorded.",
        """
        Events are per rank: (rank, name, indices) is recorded once. A wait for another rank's event, or with an
        index that no record has, would last for ever.

            record staged[i] on r
            wait staged[i + 1] on r           # the last one does not exist

        In an MSCCL file a step waits, by depid and deps, for a block that tells nobody: neither that step nor a later
        one of the block has hasdep="1".
        """,
        """
        Record the event on that rank, or restrict the wait: `wait staged[i + 1] on r if i + 1 < k`. Between
        ranks only messages make order. In an MSCCL file set hasdep="1" on the step that is waited for.
        """),
    _code(
        "SL307", "recorded-twice", FAULTY, "An event is recorded a second time.",
        """
        Each event of a rank is recorded exactly once, so that a wait is never in doubt. In a loop an event
        without an index is recorded at each turn:

            for i in 0..k: record staged on r
        """,
        """
        Index it by the loop variable, `record staged[i] on r`, and wait for `staged[i]`.
        """),
    _code(
        "SL308", "not-a-barrier", FAULTY, "A rank can leave the barrier before another has entered.",
        """
        For a barrier the end of every rank's last step must come after the begin of every rank's first one.
        That takes a chain of messages from each rank to each other. That a send is done proves nothing about
        its receiver.
        """,
        """
        The message names a pair of ranks without such a chain. Dissemination does it in ceil_log2(ranks) steps:

            for k in 0..ceil_log2(ranks):
                step:
                    for r in 0..ranks:
                        send data[0] from r to (r + (1 << k)) % ranks
        """),
)

_MEMORY = (
    _code(
        "SL401", "race", FAULTY,
        "Two streams of a rank access one location in no settled order, one of them writing.",
        """
        Streams of a rank run side by side. Where one writes what another reads or writes, something must order
        the two: a `record` after the first and a `wait` before the second, or a chain of messages through other
        ranks.

            stream a: send data[0] from 0 to 1
            stream b: copy tmp[0] into data[0] on 0      # before or after the send has read it?
        """,
        """
        Record an event after the access that is to come first and wait for it before the other, put both on one
        stream, or use separate scratch. `schedlang verify --why A B` shows what orders two operations, if
        anything does.
        """),
    _code(
        "SL402", "conflicting-writes", FAULTY,
        "One step writes a location twice, not only by reductions.",
        """
        What stands in one step happens together, so of two writes to one place neither is the last. Several
        reductions into one place are fine (they add up in the order they are written); a copy or plain receive
        beside another write is not.
        """,
        """
        Put the two into separate steps, or receive into separate scratch.
        """),
    _code(
        "SL403", "uninitialised-read", FAULTY, "An operation reads memory that nothing has written.",
        """
        Scratch and `output` start without a value. Reading includes sending, copying from, and reducing into: a
        reduction adds to what is there. A step reads before it writes, so a value that arrives in the same step
        is not there yet.

            buffer tmp[1]
            reduce data[0] into tmp[0] on r   # tmp[0] has no value to add to
        """,
        """
        Use `copy` (or `send`) for the first write, and a later step for the read.
        """),
)

_VALUES = (
    _code(
        "SL501", "missing-contribution", FAULTY, "A result lacks a rank's contribution.",
        """
        At the end a location must hold each of its contributions exactly once; here at least one is missing.
        Typical: a loop with one turn too few, a `send` (which overwrites) where a `reduce` (which adds) was
        meant, or a chunk index that is off by one.
        """,
        """
        The notes name the last operations that wrote the location, and where the missing contribution was last
        seen. Follow it with `schedlang show FILE --ranks N`.
        """),
    _code(
        "SL502", "repeated-contribution", FAULTY, "A result holds a contribution more than once.",
        """
        A contribution was added twice on its way. For sum that is a wrong number; for max it would not show,
        but it is an error there, too, so that a proof holds for every operator.
        """,
        """
        Typical: a loop with one turn too many, or `reduce` in a phase that should only pass finished values on
        with `send`. The notes name the operation that added it again.
        """),
    _code(
        "SL503", "foreign-contribution", FAULTY, "A result holds something that does not belong there.",
        """
        The location holds a contribution of another chunk or rank, for example two blocks of an all-to-all
        exchanged. The value itself may be complete; it is in the wrong place.
        """,
        """
        Compare the place it should have gone to with the `into` of the operation in the notes.
        """),
    _code(
        "SL504", "missing-result", FAULTY, "A location of the result is never written.",
        """
        The location starts without a value and nothing writes it; in an all-gather out of place, for example, a
        rank's own block has to be copied:

            copy input[0] into output[r] on r
        """,
        """
        Add the copy or transfer; look for a loop that ends too early.
        """),
    _code(
        "SL505", "disagreement", FAULTY,
        "Ranks combine the same contributions in different orders, so their bits may differ.",
        """
        Floating-point sums depend on the order: (a + b) + c need not equal a + (b + c). Where every rank sums
        for itself, ranks may end with different bits, which training code that assumes equal replicas dislikes.
        It is an error only with `--require-agreement`; integers are never affected.
        """,
        """
        Let one rank compute each chunk and send the result to the others (reduce-scatter, then all-gather), or
        use an exchange in which both partners compute the same sum, as recursive doubling does.
        """),
)

_REMARKS = (
    _code(
        "SL601", "stream-used-once", FAULTY, "A stream symbol that occurs once only; perhaps a typing slip.",
        """
        A bare name that nothing binds is a stream of that name, so a misspelt one quietly makes another stream:

            stream copies: ...
            stream copeis: ...
        """,
        """
        Correct the spelling. A stream that is really used in one place only can have an index (`stream
        wire[0]`) or be the default stream.
        """),
    _code(
        "SL602", "shorter-part", FAULTY, "A move into a part that is shorter for some element counts.",
        """
        E elements on k chunks: the first E mod k chunks are one element longer. A value that moves from chunk 0
        to chunk 3 then may not fit, so the schedule is right only where the count divides evenly; other counts
        are refused when it runs.
        """,
        """
        Move values between places of one chunk index, or through scratch, which holds the longest part. If only
        counts that divide are ever used, it may stay.
        """),
    _code(
        "SL603", "staging-copy", FAULTY, "A step both reads and writes a location, so a back end keeps a copy.",
        """
        A step reads before it writes. Where a step sends a chunk and receives into the same one, as in a swap,
        a back end has to set the old value aside, which costs memory and time.
        """,
        """
        Nothing is wrong. To avoid the copy, receive into scratch of your own or spread the swap over two steps.
        """),
    _code(
        "SL604", "input-written", FAULTY, "The schedule writes its input; back ends work on a copy.",
        """
        `input` belongs to the caller. A schedule may use it as working memory, but a caller's array is never
        changed, so it is copied first.
        """,
        """
        Nothing is wrong. Use scratch, or `inplace`, where the copy matters.
        """),
    _code(
        "SL605", "event-indices-differ", FAULTY, "An event is written with different numbers of indices.",
        """
        Events are told apart by name and indices. One without an index is the one with index 0, so these two are
        the same event:

            record got on r
            wait got[0] on r

        and `wait got[1]` waits for another one. Different numbers of indices usually mean that one was forgotten.
        """,
        """
        Write the event with the same number of indices everywhere, or give the other one a name of its own.
        """),
    _code(
        "SL606", "chosen-values", FAULTY, "Parameters that were not given have these values.",
        """
        One run, picture or table needs a value for each parameter. One that is not given has its default; without a
        default it has its value in the first case of the `verify` line that fits:

            schedule chain(ranks, root):
                verify ranks in 2..9, root in [0, ranks - 1]        # root = 0

        Counts that are not given are made up, uneven and with zeros. Of an MSCCL file that is for use in place and out
        of place the former is taken; where it does not say which rank is the root, rank 0 is.
        """,
        """
        Nothing is wrong. `-p NAME=VALUE` gives another value, `-p NAME=@FILE` counts.
        """),
    _code(
        "SL607", "never-read", FAULTY, "A value is written and never read, and the result does not need it.",
        """
        The place is overwritten before anything reads it, or it is scratch and the schedule is over, or what reads
        it is useless itself. Without the operation every result is the same and every proof still holds: a message
        that nothing needs for its value, but that settles an order something relies on, is not reported.

            copy data[0] into old[0] on r     # and nothing ever reads old[0]

        Where several sizes are verified and it is so in some of them only, it is a note. A world of one rank is not
        judged, nor a slice of which some chunk is needed.
        """,
        """
        Leave the operation out, where it is useless in all turns; let the loop end earlier or add a trailing `if`,
        where only in some. Where a fused forward passes the value on and only its store is useless, end it in
        `only`: `then send to q only`.
        """),
    _code(
        "SL608", "there-already", FAULTY, "A value comes to a place that holds this very value already.",
        """
        The place holds the same contributions, added up in the same order, before the operation and after it. In
        an all-gather that goes round once too often, the last step brings every rank what it has. As with SL607,
        everything is proved without the operation, too.

            for s in 0..ranks:                # a ring needs ranks - 1 steps
                step: ...

        It is a warning where all that a statement does is useless so, or a whole step; else a note, since it is often
        simpler to send a rank what it has than to leave it out.
        """,
        """
        End the loop a turn earlier, or leave out by a trailing `if` what the receiver has.
        """),
    _code(
        "SL609", "unused-stream", FAULTY, "On a stream nothing happens but records and waits that order nothing.",
        """
        No transfer, copy or `use` stands in the stream, and nothing waits for what it records:

            stream up:
                wait arrived[i] on r          # and then?
        """,
        """
        Move to it what should wait, or leave the stream out.
        """),
    _code(
        "SL610", "unused-buffer", FAULTY, "A buffer is declared and never named again.",
        """
        Every rank sets memory aside for a buffer.

            buffer staging[k]                 # no statement reads or writes staging
        """,
        """
        Leave the declaration out, or use the buffer where it was meant to be.
        """),
    _code(
        "SL611", "never-waited-for", FAULTY, "An event is recorded and never waited for.",
        """
        A `record` orders something only together with a `wait` for the same event of the same rank. Events belong to
        the schedule that they stand in: one that uses it cannot wait for them.
        """,
        """
        Add the `wait` on the stream that is to come after, correct the name, or leave the `record` out.
        """),
    _code(
        "SL612", "unused-parameter", FAULTY, "A parameter changes nothing.",
        """
        The schedule never reads the parameter: whatever its value, the same operations come out. Its own values in
        the `verify` line do not count.

            schedule chain(ranks, k=8):       # and no k below
        """,
        """
        Leave it out, or use it where a number stands in its place.
        """),
    _code(
        "SL613", "overflow", FAULTY, "Results can leave the range of the dtype.",
        """
        With `verify --dtype` the additions of the schedule are carried out in the dtype, each rounded to it, in the
        order that the schedule gives them. A result of n contributions overflows where all of them are about n times
        smaller than the largest number: 1,024 values of 64.0 add up to 65,536, and float16 ends at 65,504; a floating
        result is then infinite, an integer wraps round. The message gives the largest input that cannot overflow
        whatever the others are, exactly, and what the next larger one gives.

        The warning is given where inputs of less than 256 can overflow. What inputs are safe stands below the verdict
        in any case. Of several sizes, both tell of the one with the most ranks.
        """,
        """
        Scale the inputs down first (`avg` divides at the end only), or choose a dtype with more range: bfloat16 has
        that of float32. `run --accumulate float32` keeps what is under way in range, not the result.
        """),
    _code(
        "SL614", "stalled-sum", FAULTY, "A long chain of additions loses what it adds.",
        """
        A number of few bits no longer changes when something much smaller is added: in bfloat16 256 + 1 is 256, in
        float16 2,048 + 1 is 2,048. So a ring over 1,024 ranks in bfloat16 makes 256 of 1,024 ones. With `verify
        --dtype` the schedule's own order of additions is tried on ones; the warning says that the result is further
        off than a balanced tree of additions could be.
        """,
        """
        Add numbers of like size: halving-doubling and trees do, rings and chains do not. Or hold the sums in a wider
        dtype: `run --accumulate float32`.
        """),
    _code(
        "SL615", "not-understood", FAULTY, "Something in an MSCCL file that is not understood was left out.",
        """
        Writers of MSCCL files add attributes and elements of their own. What is not part of the format is left out,
        as the runtimes leave it out; the verdict is on the rest. Each is named once, with its first place.

            <step s="0" type="s" ... label="first"/>        # label says nothing to anybody

        A `coll` such as "custom" does not say what must hold at the end. Everything else is proved, and a warning says
        that no result was.
        """,
        """
        Nothing is wrong, unless the name is a slip: `outofpalce`, for example, is another attribute than `outofplace`.
        """),
)

_RUNTIMES = (
    _code(
        "SL701", "over-limit", FAULTY, "A file has more of something than the runtime has room for.",
        """
        `verify --runtime` compares an MSCCL file with what the runtime that is to read it was built for: steps of a
        block, blocks of a rank, channels, chunks of a step, blocks on one channel, offsets of 16 bits, elements that
        its reader has room for, files that it keeps. The message says what the runtime does: gives an error when the
        communicator is made, warns and goes on without the file, or reads on and misbehaves.
        """,
        """
        Spread steps over more blocks and blocks over more channels, move fewer chunks at a time, or generate the file
        with fewer instances. --channels says how many channels the communicator has.
        """),
    _code(
        "SL702", "unsupported", FAULTY, "The runtime does not have what the file, or the call, needs.",
        """
        RCCL is built without the fused operations rcs, rrc, rrs and rrcs: it takes such a file, and the call fails. So
        do RCCL and the Azure executor where a rank has no block, since the GPU is to start none.
        Collectives have names that differ between the runtimes (`reduce_scatter`, `reducescatter`). And no runtime
        runs a file for another operator than sum, prod, min and max: an average goes to its own algorithms.
        """,
        """
        Generate the file without fused operations, or for the runtime that it is to run on.
        """),
    _code(
        "SL703", "size-out-of-range", FAULTY, "The call's size is not in the file's range of sizes.",
        """
        minBytes and maxBytes say for which sizes a file is; all other calls pass it over without a word. Sizes are
        bytes of the whole buffer: for all-gather, reduce-scatter and all-to-all those of all ranks together. RCCL and
        the Azure executor take both ends, and 0 for no end; microsoft/msccl does not take maxBytes itself, and stops
        at 128 MiB where the file says nothing. A range that no size lies in is reported without --bytes, too, and as a
        warning without --runtime.
        """,
        """
        Widen the range, or add a file for these sizes.
        """),
    _code(
        "SL704", "does-not-divide", FAULTY, "The file's chunks do not divide the elements of the call.",
        """
        A runtime takes a file only where the number of elements is a multiple of nchunksperloop; others it passes
        over without a word. So a file with 24 chunks is never taken for the powers of two that people call with.
        """,
        """
        Call with a size that the message offers, or generate the file with fewer chunks.
        """),
    _code(
        "SL705", "wrong-world", FAULTY, "The file is for another number of ranks.",
        """
        `ngpus` must be the number of ranks of the communicator, which --ranks gives. RCCL and the Azure executor pass
        other files over without a word.
        """,
        """
        Generate the file for this number of ranks.
        """),
    _code(
        "SL706", "wrong-placement", FAULTY, "The file is not for calls in place, or not for calls out of place.",
        """
        inplace="1" says that a file is right where the buffers of a call are one, outofplace="1" that it is where they
        are not. For other calls it is passed over without a word: a framework that reduces in place never meets a file
        with inplace="0".
        """,
        """
        Say it where it is so: `verify` proves both ways that a file says.
        """),
    _code(
        "SL707", "misread", FAULTY, "The runtime cannot read the file, or reads something else than it says.",
        """
        The runtimes read XML with a reader of their own, which knows neither declarations nor single quotes, tabs or
        line ends within tags, and demands attributes that others leave out. And some files mean something else to
        them than they say: a nop without a dependency is not counted as a step, several `re` into one place become
        one. The message says what happens.
        """,
        """
        Write the file as the message says. Files that `schedlang` or the usual compilers write are read by all.
        """),
    _code(
        "SL708", "shadowed", FAULTY, "Another file is taken instead of this one.",
        """
        Of several files that fit a call the runtime takes the first: in a folder the first by name. The warning is
        given where a file is never taken, the note where it is not taken for the size that was asked for.
        """,
        """
        Narrow the range of one of them, or rename one, or delete the one that is not wanted.
        """),
    _code(
        "SL709", "size-gap", FAULTY, "There are sizes between those that the files are for.",
        """
        For sizes that no file of the folder is for, the runtime runs its own algorithm without a word. That may be
        meant, and it may be a maxBytes that ends a byte, or a power of two, too early.
        """,
        """
        Let the ranges meet: where one ends with 65535, the next begins with 65536.
        """),
    _code(
        "SL710", "size-overlap", FAULTY, "Two files are for the same sizes.",
        """
        The runtime takes the first, by name or in the order given, wherever its chunks divide the size; so which file
        runs may depend on the number of elements.
        """,
        """
        Let one begin behind the end of the other: both ends belong to a range in RCCL and the Azure executor.
        """),
)

_RUNNING = (
    _code(
        "SL801", "bad-input", UNUSABLE, "The arrays given do not fit the schedule.",
        """
        A run takes one array per rank, all of one dtype, shape and device, or a single array whose first axis
        is the rank.
        """,
        """
        The message names the rank and what differs.
        """),
    _code(
        "SL802", "bad-size", UNUSABLE, "The element count does not fit the schedule.",
        """
        The long buffer of a blocked collective divides evenly over the ranks, as in NCCL and torch.distributed;
        in `custom` all chunks have one length; and a schedule with the warning SL602 runs only on counts that
        its chunks divide.
        """,
        """
        Use one of the sizes that the message offers, or pad.
        """),
    _code(
        "SL803", "bad-dtype", UNUSABLE, "The dtype is unknown, or the operator is not defined for it.",
        """
        There are float16, bfloat16, float32, float64 and the integers of 8 to 64 bits. Bitwise operators need
        integers.
        """,
        """
        Choose another `--dtype` or another `--op`.
        """),
    _code(
        "SL804", "no-backend", UNUSABLE, "The back end is unknown or cannot run here.",
        """
        A back end may need a package or a device that this machine lacks; the message says what. `numpy` and
        `interpret` are always there.
        """,
        """
        Install what is missing, or choose another with `--backend`.
        """),
    _code(
        "SL805", "wrong-result", FAULTY, "The result differs from the reference by more than the dtype's rounding.",
        """
        With `--check` the result is compared with one computed in float64, or exactly for integers; the
        difference is larger than the number of additions explains. For a schedule that verifies, that is a
        fault of the back end or the machine.
        """,
        """
        Run `schedlang verify` on the schedule. If it is clean, compare `--backend interpret` and report a bug.
        """),
    _code(
        "SL806", "bad-option", UNUSABLE, "A command-line option or argument cannot be used.",
        """
        An option is unknown, lacks its value, has one that cannot be read, or does not go together with another.

            schedlang verify ring.sched --ranks 4...8         # a range is 4..8
        """,
        """
        `schedlang COMMAND --help` lists the options with their values.
        """),
    _code(
        "SL807", "unwritable", UNUSABLE, "The output file cannot be written.",
        """
        The folder does not exist, may not be written to, or the disk is full. A file that was there before is
        left as it was.
        """,
        """
        Give another path, or make room on the disk.
        """),
    _code(
        "SL808", "not-in-the-language", UNUSABLE, "The table does something that source has no words for.",
        """
        Tables that come from programs can do a little more than the language says: store nothing of what arrives
        without passing it on, pass a message on by a connection that must not be called as the one it came by, keep
        scratch on one rank only. `schedlang compile --target sched` writes such a table not at all, rather than
        something else.
        """,
        """
        Change what the message names in the program that wrote the table; `verify` and `run` take the table as it is.
        """),
    _code(
        "SL811", "no-world", UNUSABLE, "The ranks cannot be started, or are not those of the schedule.",
        """
        With the back end torch each rank is a process. It starts as many as the schedule has ranks, on this machine;
        under torchrun it uses those that are there, whose number must then be the schedule's; so does the back end
        native, whose ranks must all be on one machine, of one user, and see each other's processes. Over NCCL each rank
        needs a GPU of its own. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say that it is one of several processes,
        and which: all of them, or it cannot join the others. With the back end cupy all lanes on a GPU, each with all
        its blocks, must be there at once, since they wait for each other.

            torchrun --nproc-per-node 4 -m schedlang run ring.sched --ranks 8 --backend torch      # 4 are not 8
        """,
        """
        Start as many processes as there are ranks. Where there are fewer GPUs than ranks, `--device cpu` runs them over
        Gloo. Where a script has set some of the four variables, start it by torchrun, or unset RANK and WORLD_SIZE. On
        GPUs take fewer `--blocks`, more `--devices`, or `--mode streams`, where nothing waits on a GPU.
        """),
    _code(
        "SL812", "ranks-disagree", UNUSABLE, "The ranks do not make the same call.",
        """
        In torch every rank makes its call by itself, and all of them must mean the same: the same collective, with the
        same schedule, operator, dtype, root and number of elements; where counts differ from pair to pair, both ends
        must have the same one. Else messages would be longer or shorter than what waits for them, which Gloo takes
        silently or ends the process for. So the ranks compare what they mean before any payload moves, and all refuse.
        """,
        """
        The message names two ranks and what each of them has. Make the call alike on all ranks, and in the same order
        with others.
        """),
    _code(
        "SL813", "rank-lost", UNUSABLE, "A rank waits in vain for another.",
        """
        A message did not come, or was not taken, within the timeout; or the connection broke. Ranks that wait long say
        in the store for whom, so each that gives up can tell who is at the end of the chain: that rank has died, is
        stopped, hangs elsewhere, or has not made the call. A schedule that is proved right does not wait in a circle.
        Of kernels, here and on GPUs, the lanes say it, and all of them are ended.
        """,
        """
        Look at the log of the rank at the end, not at those that wait. Where it is only slow, give a longer timeout.
        The process group cannot be used any more: end the processes and start again.
        """),
    _code(
        "SL814", "not-in-torch", UNUSABLE, "Torch cannot compute that on this device.",
        """
        Torch stores uint16, uint32 and uint64, but does not compute with them. On the CPU NumPy does it in its place;
        on a GPU nothing does.
        """,
        """
        Use a signed dtype of that size (sums, products and bits come out the same), or tensors on the CPU.
        """),
    _code(
        "SL815", "unfit-tensor", UNUSABLE, "A tensor is not as the schedule needs it.",
        """
        Whoever executes one rank's part himself gives it that rank's buffers: one-dimensional, contiguous, of the
        length that the element count makes, all of one dtype and on one device.
        """,
        """
        The message says which buffer differs and how to make it fit. `schedlang.torch` takes tensors of any shape.
        """),
    _code(
        "SL816", "unfit-schedule", UNUSABLE, "The schedule is for something else than the call.",
        """
        A call to `schedlang.torch` takes a schedule for its own collective, for as many ranks as the process group has,
        and with the root of the call.
        """,
        """
        Name a schedule for this collective. Give the file rather than a loaded schedule: it is then loaded for the size
        of the group, and its parameter `root` has the root of the call.
        """),
)

_ALL = _TEXT + _NAMES + _ORDER + _MEMORY + _VALUES + _REMARKS + _RUNTIMES + _RUNNING

CODES: dict[str, Code] = {c.code: c for c in _ALL}
"""All codes, by code."""

GROUPS: dict[str, tuple[Code, ...]] = {
    "The text": _TEXT, "Names, values, structure": _NAMES, "Order between operations": _ORDER, "Memory": _MEMORY,
    "Values": _VALUES, "Remarks": _REMARKS, "What runtimes take": _RUNTIMES, "Running": _RUNNING}
"""All codes in groups, with the groups' titles, in order."""


def find(word: str) -> Code | None:
    """The code written ``word``: its code (any case) or its name."""
    return CODES.get(word.upper()) or next((c for c in _ALL if c.name == word.lower()), None)
