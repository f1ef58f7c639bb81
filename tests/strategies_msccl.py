"""Random MSCCL files: thrown together, mostly legal, seldom right."""

from hypothesis import strategies as st

from tests.msccl_text import algo, block, copy, gpu, step

number = st.one_of(st.integers(0, 3), st.integers(-2, 9), st.sampled_from(["", "x", "0x1", "1e3", "99999999999", "²"]))
small = st.integers(0, 3)
COLLECTIVES = ["allreduce", "allgather", "alltoall", "reduce", "broadcast", "reduce_scatter", "reducescatter", "gather",
               "scatter", "custom", "send", "recv", "alltoallv"]


def mostly(usual, other=number, rarely=250):
    """The usual, and once in a while something else: a file has many of these."""
    return st.integers(0, rarely).flatmap(lambda k: other if k == rarely // 2 else usual)


@st.composite
def steps(draw, send, recv, blocks):
    kinds = ["cpy", "re", "nop"] + ["s"] * 2 * (send >= 0) + ["r", "rrc"] * (recv >= 0)
    kinds += ["rcs", "rrs", "rrcs"] * (send >= 0 and recv >= 0)
    made = []
    for _ in range(draw(st.sampled_from([0, 2, 2, 3, 4]))):
        place = st.tuples(mostly(st.sampled_from("ios"), st.sampled_from(["d", ""])),
                          mostly(st.sampled_from([0, 0, 1, 1, 2, 3])))
        dep = draw(st.sampled_from([None] * 4 + [(b, s) for b in range(blocks) for s in (-1, 0, 0)]))
        made.append(step(draw(mostly(st.sampled_from(kinds), st.sampled_from(["s", "rrcs", "recv", ""]))), draw(place),
                         draw(place), draw(mostly(st.sampled_from([1, 1, 1, 2]))), dep=dep,
                         hasdep=draw(mostly(st.sampled_from([0, 1, 1])))))
    return made


@st.composite
def files(draw):
    """Files thrown together: mostly legal, seldom right."""
    ranks, chunks = draw(st.sampled_from([1, 2, 2, 3])), draw(st.sampled_from([4, 6, 6, 12]))
    gpus = []
    for rank in range(ranks):
        ends: set[tuple[str, int, int]] = set()
        made = []
        blocks = draw(st.integers(0, 3))
        for id in range(blocks):
            chan = draw(small)
            send, recv = (draw(st.sampled_from([-1] + [p for p in range(ranks) if p != rank])) for _ in "sr")
            send = -1 if ("s", send, chan) in ends else send
            recv = -1 if ("r", recv, chan) in ends else recv
            ends |= {("s", send, chan), ("r", recv, chan)}
            made.append(block(draw(mostly(st.just(id))), draw(steps(send, recv, blocks)), send=send, recv=recv,
                              chan=chan))
        made += [copy(draw(mostly(small)), draw(mostly(small))) for _ in range(draw(st.sampled_from([0, 0, 0, 2])))]
        gpus.append(gpu(draw(mostly(st.just(rank))), made, s=draw(mostly(st.just(4)))))
    return algo(
        gpus, chunks=chunks, coll=draw(mostly(st.sampled_from(COLLECTIVES), st.sampled_from(["", "barrier"]))),
        proto=draw(mostly(st.sampled_from(["Simple", "LL", "LL128"]), st.sampled_from(["ll", ""]))),
        **draw(mostly(st.sampled_from([{}, {"outofplace": 1}, {"inplace": 0, "outofplace": 1}]), st.fixed_dictionaries(
            {"inplace": number, "outofplace": st.one_of(number, st.none())}))),
        **draw(st.sampled_from([{}, {}, {"redop": "max"}, {"root": 1}, {"nthreads": 256}])))
