"""MSCCL files as their compilers write them, of any size."""

from tests.msccl_text import Element, algo, block, gpu, nop, step


def ring(ranks: int, channels: int) -> str:
    """An all-reduce: on each channel a ring of fused operations, 2 * ranks - 1 steps in each block."""
    def steps(rank: int, channel: int) -> list[Element]:
        kinds = ["s", *["rrs"] * (ranks - 2), "rrcs", *["rcs"] * (ranks - 2), "r"]
        places = [("i", channel * ranks + (rank - k) % ranks) for k in range(len(kinds))]
        return [step(kind, place, place) for kind, place in zip(kinds, places, strict=True)]

    return algo([gpu(r, [block(c, steps(r, c), send=(r + 1) % ranks, recv=(r - 1) % ranks, chan=c)
                         for c in range(channels)]) for r in range(ranks)], chunks=ranks * channels, name="ring")


def all_pairs(ranks: int, instances: int, cnt: int) -> str:
    """An all-reduce: every rank sends each other its part, ``cnt`` chunks at a time; a block for each chunk adds up
    what came; the sums go back. Blocks wait for each other by flags."""
    def blocks(rank: int, instance: int) -> list[Element]:
        peers = [p for p in range(ranks) if p != rank]
        first, chunk = instance * (len(peers) + cnt), instance * ranks * cnt
        mine, sums, last = ("i", chunk + rank * cnt), first + len(peers), 2 * len(peers) - 2
        made = []
        for j, p in enumerate(peers):
            steps = [step("s", ("i", chunk + p * cnt), cnt=cnt),
                     step("r", dst=("s", chunk + p * cnt), cnt=cnt, hasdep=1),
                     *(nop((sums + k, last)) for k in range(1, cnt)), step("s", mine, cnt=cnt, dep=(sums, last)),
                     step("r", dst=("i", chunk + p * cnt), cnt=cnt)]
            made.append(block(first + j, steps, send=p, recv=p, chan=instance))
        for k in range(cnt):
            steps = [nop((first + j, 1)) for j in range(1, len(peers))]
            steps += [step("re", ("s", chunk + p * cnt + k), (mine[0], mine[1] + k), dep=(first, 1) if j == 0 else None,
                           hasdep=int(j == len(peers) - 1)) for j, p in enumerate(peers)]
            made.append(block(sums + k, steps))
        return made

    return algo([gpu(r, [b for v in range(instances) for b in blocks(r, v)], s=instances * ranks * cnt)
                 for r in range(ranks)], chunks=ranks * cnt * instances, name="all_pairs")
