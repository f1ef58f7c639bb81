"""The parts a walk's records are made of: ways to say which contributions a value holds, and how they were combined."""

from __future__ import annotations

import numpy as np

from schedlang.ir.table import Array

PRIME = (1 << 61) - 1

_PRIME = np.uint64(PRIME)


_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)


def _apart(contributions: Array, ranks: int) -> tuple[Array, Array]:
    """(rank, class) of each contribution: elements stand rank by rank, in the order in which walks ask for them."""
    of_class = contributions // ranks
    return contributions - of_class * ranks, of_class


class Names:
    """The one contribution a value holds, by number: exact as long as nothing is reduced."""

    width = 1

    def initial(self, contributions: Array) -> Array:
        return contributions.astype(np.uint64)[:, None]

    def combine(self, into: Array, other: Array) -> None:
        raise AssertionError("a schedule without reductions reduces")


class Sets:
    """The set of contributions a value holds, exactly: a bit for each, in the words after the first.

    The first word is the class plus one while all values mix contributions of one class only, and bits stand for ranks.
    ``mixed`` becomes true where classes meet; the walk's result then says nothing. With ``whole`` the bits stand for
    all contributions, and the first word is always 1.
    """

    def __init__(self, ranks: int, classes: int, *, whole: bool) -> None:
        self.bits = ranks * classes if whole else ranks
        self.ranks = ranks
        self.whole = whole
        self.width = 1 + -(-self.bits // 64)
        self.mixed = False

    def split(self, contributions: Array) -> tuple[Array, Array]:
        """(first word, bit) of each contribution."""
        if self.whole:
            return np.ones(len(contributions), np.uint64), contributions
        return (contributions // self.ranks + 1).astype(np.uint64), contributions % self.ranks

    def initial(self, contributions: Array) -> Array:
        words = np.zeros((len(contributions), self.width), np.uint64)
        words[:, 0], bit = self.split(contributions)
        words[np.arange(len(bit)), 1 + bit // 64] = np.uint64(1) << (bit % 64).astype(np.uint64)
        return words

    def everyone(self) -> Array:
        """The words of the set of all ranks' contributions of one class."""
        bits = np.zeros((self.width - 1) * 64, np.uint8)
        bits[: self.bits] = 1
        return np.packbits(bits, bitorder="little").view("<u8").astype(np.uint64)

    def combine(self, into: Array, other: Array) -> None:
        mine, theirs = into[:, 0], other[:, 0]
        # A value made from something uninitialised may have no class.
        if np.any((mine != theirs) & (mine != 0) & (theirs != 0)):
            self.mixed = True
        np.maximum(mine, theirs, out=mine)
        into[:, 1:] |= other[:, 1:]


_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(1, dtype=np.uint8)


def bits(words: Array) -> Array:
    """How many bits are set in each row of words."""
    count: Array = _BITS[np.ascontiguousarray(words).view(np.uint8)].sum(1, dtype=np.int64)
    return count


class Fingerprints:
    """The sum of random elements modulo 2^61 - 1, one independent element for each contribution.

    Two different multisets in which nothing stands as often as p = 2^61 - 1 times have equal sums with a probability of
    1 / p: the difference of the sums is a linear form in the elements, some coefficient of which is not zero modulo p,
    and whatever the other elements are, one value in p of that element makes the form zero. A sum alone would not do:
    what is doubled 61 times is what it was, modulo p. So the count of the walk goes with it: it is exact where it
    equals the size of what is expected (at most 2^53), and then nothing stands more often than that.

    The elements are drawn anew in every run, after the schedule is fixed, so a schedule cannot be made to pass.
    """

    width = 1

    def __init__(self, ranks: int, classes: int, rng: np.random.Generator) -> None:
        self.ranks = ranks
        self.elements = rng.integers(0, PRIME, (ranks, classes), dtype=np.uint64)

    def of(self, contributions: Array) -> Array:
        """The element of each contribution."""
        return self.elements[_apart(contributions, self.ranks)]

    def initial(self, contributions: Array) -> Array:
        return self.of(contributions)[:, None]

    def combine(self, into: Array, other: Array) -> None:
        into += other
        np.minimum(into, into - _PRIME, out=into)

    def sums(self) -> Array:
        """For each class the sum over all ranks."""
        left = self.elements
        while len(left) > 1:
            half = len(left) // 2
            folded = left[:half] + left[half : 2 * half]
            np.minimum(folded, folded - _PRIME, out=folded)
            left = np.concatenate([folded, left[2 * half :]])
        return left[0]

    def sums_of(self, starts: Array, sources: Array) -> Array:
        """The sum of each list ``sources[starts[i]:starts[i + 1]]``."""
        totals = np.zeros(len(starts) - 1, np.uint64)
        size = np.diff(starts)
        for k in range(int(size.max(initial=0))):
            some = np.flatnonzero(size > k)
            totals[some] = (totals[some] + self.of(sources[starts[some] + k])) % _PRIME
        return totals


class Trees:
    """How a value was combined: two 64-bit hashes of its tree of additions, each addition unordered, copies
    transparent.

    A leaf is a random pair for its contribution, a node mixes the sum of its two children's words. Different trees have
    equal pairs by accident only.
    """

    width = 2

    def __init__(self, ranks: int, classes: int, rng: np.random.Generator) -> None:
        self.ranks = ranks
        self.elements = rng.integers(0, 1 << 64, (ranks, classes, 2), dtype=np.uint64)

    def initial(self, contributions: Array) -> Array:
        return self.elements[_apart(contributions, self.ranks)]

    def combine(self, into: Array, other: Array) -> None:
        mixed = into + other
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(0xD6E8FEB86659FD93)
        mixed ^= mixed >> np.uint64(29)
        mixed *= _MIX
        np.bitwise_xor(mixed, mixed >> np.uint64(32), out=into)


class Traces:
    """Whether a value holds one given contribution (1 or 0)."""

    width = 1

    def __init__(self, contribution: int) -> None:
        self.contribution = contribution

    def initial(self, contributions: Array) -> Array:
        held: Array = contributions == self.contribution
        return held.astype(np.uint64)[:, None]

    def combine(self, into: Array, other: Array) -> None:
        into |= other
