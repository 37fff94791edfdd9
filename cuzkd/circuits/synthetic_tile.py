"""The tile that the synthetic circuit repeats: a thousand constraints in the proportions of a PoRep partition.

Gadgets are those of bellman and neptune, whose rows such a partition is made of:

    boolean     (1 - b) b = 0
    xor         2a b = a + b - c
    choose      (b - c) a = ch - c
    majority    b c = bc,  (2 bc - b - c) a = bc - maj
    addition    of five words: sum 2^i (operands' bits) - sum 2^i (result's 35 bits) = 0, one dense row
    fifth power of s, a combination of earlier field elements and of a word's bits, plus a constant:
                s = sum m_j x_j + sum 2^i b_i,  s s = t,  t t = u,  u s = x - k

Words are mixed as SHA-256 mixes them; the fifth powers absorb the first word and the last, and four free field elements
("siblings", as in a Merkle path). Nothing here is a hash to rely on.

Problem: a circuit of 10^8 rows, with a witness for it, in seconds.
Design: wires are numbered in the order in which rows first use them, so that the first rows of a tile over the first
wires are a circuit, too. Bits follow from one input word: they are solved once, for SAMPLES words, while the rows
are written down. Field elements are computed for each tile anew, thousands at a time: no two tiles share them, so
multi-scalar sums meet scalars as scattered as real ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, reduce

import numpy as np
from numpy.typing import NDArray

from cuzkd.backend.protocol import U64, SparseMatrix
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES
from cuzkd.groth16 import hosts
from cuzkd.groth16.constraints import Constraints, Row, from_rows

ONE = 0
WORD_BITS = 32
SAMPLES = 64
SIBLINGS = 4
STATE = 4  # how many earlier field elements a round combines
VALUE = np.dtype("V32")  # a witness value as one item, little-endian, whatever its alignment

Bits = NDArray[np.uint8]  # of one wire, in each sample
Values = NDArray[np.void]  # of VALUE
Word = list[int]  # wires, lowest bit first


@dataclass(frozen=True)
class Round:
    """One fifth power. factors: m_j of the latest field elements, oldest first. word: which packed word it absorbs."""

    factors: tuple[int, ...]
    word: int | None
    sibling: bool
    constant: int


@dataclass(frozen=True)
class Tile:
    """n_rows constraints over wires 1 .. n_wires (0 is ONE); the same one for a curve at all times.

    constraints  the tile as a circuit by itself, without public wires (so it ends with the row that binds ONE)
    wires_after  int64[n_rows + 1]; the first m rows use wires up to wires_after[m], every one of them
    samples      VALUE[SAMPLES, n_wires], canonical: bits of wires 1 .. n_wires, zero where a field element belongs
    packed       of each absorbed word its value in each sample, [SAMPLES, 4] Montgomery
    field_wires  int64, ascending: of each round its sibling, if any, then s, t, u, x
    """

    curve: str
    constraints: Constraints
    wires_after: NDArray[np.int64]
    samples: Values
    packed: tuple[U64, ...]
    rounds: tuple[Round, ...]
    field_wires: NDArray[np.int64]

    @property
    def n_rows(self) -> int:
        return self.constraints.n_constraints

    @property
    def n_wires(self) -> int:
        return self.constraints.n_wires - 1

    @property
    def matrices(self) -> tuple[SparseMatrix, SparseMatrix, SparseMatrix]:
        """A, B, C."""
        a, b, c = self.constraints.a, self.constraints.b, self.constraints.c
        assert c is not None
        return a, b, c

    @property
    def digest_wire(self) -> int:
        """The last x: everything in the tile flows into it."""
        return int(self.field_wires[-1])

    def counts(self, rows: int) -> NDArray[np.int64]:
        """Of the first rows: entries of A, B, C; entries other than +1 and -1; wires in A, in B; field elements."""
        firsts = [(m, int(m.row_ptr[rows])) for m in self.matrices]
        others = sum(int(np.count_nonzero(m.coeff[:n] > 1)) for m, n in firsts)
        in_a, in_b = (np.count_nonzero(np.unique(m.cols[:n]) != ONE) for m, n in firsts[:2])
        field = np.count_nonzero(self.field_wires <= self.wires_after[rows])
        return np.array([*(n for _, n in firsts), others, in_a, in_b, field])

    def solve(self, choice: NDArray[np.uint8], siblings: U64, out: Values) -> None:
        """Witnesses of n tiles into out: VALUE[n, n_wires]. Threads may do so side by side.

        choice: [n], below SAMPLES. siblings: [SIBLINGS, n, 4], CANONICAL, below r.
        """
        np.take(self.samples, choice, axis=0, out=out, mode="clip")  # "raise" would go through a copy
        for wire, column in zip(self.field_wires, self.field_values(choice, siblings), strict=True):
            out[:, wire - 1] = column.view(VALUE)[:, 0]

    def field_values(self, choice: NDArray[np.uint8], siblings: U64) -> U64:
        """[len(field_wires), n, 4], CANONICAL: what field_wires carry in n tiles."""
        backend, n = hosts.best().backend, len(choice)

        def op(name: str, a: U64, b: U64 | None = None) -> U64:
            return backend.field_op(self.curve, "fr", name, a, b)

        def montgomery(values: Sequence[int]) -> U64:
            """Each value n times."""
            return np.repeat(limbs.to_montgomery(values, CURVES[self.curve].r), n, axis=0)

        given = iter(siblings)
        found: list[U64] = []
        state: list[U64] = []
        for round_ in self.rounds:
            if round_.sibling:
                found.append(op("to_mont", np.ascontiguousarray(next(given))))
                state.append(found[-1])
            latest = state[-len(round_.factors) :]
            summands = np.split(op("mul", np.concatenate(latest), montgomery(round_.factors)), len(latest))
            if round_.word is not None:
                summands.append(self.packed[round_.word].take(choice, axis=0))
            s = reduce(lambda x, y: op("add", x, y), summands)
            t = op("sqr", s)
            u = op("sqr", t)
            state.append(op("add", op("mul", u, s), montgomery([round_.constant])))
            found += [s, t, u, state[-1]]
        return op("from_mont", np.concatenate(found)).reshape(-1, n, 4)


@cache
def tile(curve: str) -> Tile:
    """The tile over a curve."""
    g = _Gates(curve)
    value = g.input_word([_number(f"cuzkd synthetic sample {i}") for i in range(SAMPLES)])
    g.fifth_power(absorb=value, sibling=True)
    sigmas: list[Word] = []

    def sigma(word: Word, *by: int) -> Word:
        """xor of three rotations."""
        i, j, k = (_rotated(word, n) for n in by)
        sigmas.append([g.xor(g.xor(p, q), s) for p, q, s in zip(i, j, k, strict=True)])
        g.fifth_power(sibling=len(sigmas) % 3 == 0)
        return sigmas[-1]

    x, y, z = sigma(value, 2, 13, 22), sigma(value, 6, 11, 25), sigma(value, 7, 18, 3)
    chosen = [g.choose(*bits) for bits in zip(value, x, y, strict=True)]
    g.fifth_power()
    before, value = value, g.add([value, x, y, z, chosen])
    for step in range(4):
        older, x = x, sigma(value, 2, 13, 22)
        if step == 1:
            y = [g.majority(*bits) for bits in zip(value, before, x, strict=True)]
        else:
            y = sigma(before, 6, 11, 25)
        before, value = value, g.add([value, before, older, x, y])
    g.fifth_power(absorb=value)
    return g.tile()


class _Gates:
    """Rows as they are written down, and of each wire its bits in the samples: None for a field element."""

    def __init__(self, curve: str) -> None:
        self._curve = curve
        self._a: list[Row] = []
        self._b: list[Row] = []
        self._c: list[Row] = []
        self._bits: list[Bits | None] = [np.ones(SAMPLES, np.uint8)]
        self._words: list[U64] = []
        self._rounds: list[Round] = []
        self._state: list[int] = []

    def input_word(self, values: Sequence[int]) -> Word:
        """The low bits of one number for each sample."""
        return [self.boolean(np.array([v >> i & 1 for v in values], np.uint8)) for i in range(WORD_BITS)]

    def boolean(self, bits: Bits) -> int:
        wire = self._new(bits)
        self._row({ONE: 1, wire: -1}, {wire: 1}, {})
        return wire

    def xor(self, a: int, b: int) -> int:
        c = self._new(self._of(a) ^ self._of(b))
        self._row({a: 2}, {b: 1}, {a: 1, b: 1, c: -1})
        return c

    def choose(self, a: int, b: int, c: int) -> int:
        """b where a, else c."""
        chosen = self._new(np.where(self._of(a), self._of(b), self._of(c)))
        self._row({b: 1, c: -1}, {a: 1}, {chosen: 1, c: -1})
        return chosen

    def majority(self, a: int, b: int, c: int) -> int:
        both = self._new(self._of(b) & self._of(c))
        self._row({b: 1}, {c: 1}, {both: 1})
        most = self._new(np.where(self._of(a), self._of(b) | self._of(c), self._of(both)))
        self._row({both: 2, b: -1, c: -1}, {a: 1}, {both: 1, most: -1})
        return most

    def add(self, words: Sequence[Word]) -> Word:
        """The sum mod 2^32 of words without a wire in common; the bits above are wires, too."""
        total = np.sum([self._packed(word) for word in words], axis=0)
        n_bits = WORD_BITS + (len(words) - 1).bit_length()
        result = [self.boolean((total >> i & 1).astype(np.uint8)) for i in range(n_bits)]
        operands = {wire: 1 << i for word in words for i, wire in enumerate(word)}
        self._row({**operands, **{wire: -(1 << i) for i, wire in enumerate(result)}}, {ONE: 1}, {})
        return result[:WORD_BITS]

    def fifth_power(self, absorb: Word | None = None, sibling: bool = False) -> None:
        """One round over the latest field elements; sibling: a free one joins them first."""
        if sibling:
            self._state.append(self._new(None))
        latest = self._state[-STATE:]
        name, r = f"cuzkd synthetic {self._curve} {len(self._rounds)}", CURVES[self._curve].r
        factors = tuple(_number(f"{name} factor {j}") % r for j in range(len(latest)))
        constant, word = _number(f"{name} constant") % r, None
        combination: Row = dict(zip(latest, factors, strict=True))
        if absorb is not None:
            word = len(self._words)
            self._words.append(limbs.to_montgomery(self._packed(absorb).tolist(), r))
            combination = {**combination, **{wire: 1 << i for i, wire in enumerate(absorb)}}
        s, t, u, x = (self._new(None) for _ in range(4))
        self._row(combination, {ONE: 1}, {s: 1})
        self._row({s: 1}, {s: 1}, {t: 1})
        self._row({t: 1}, {t: 1}, {u: 1})
        self._row({u: 1}, {s: 1}, {x: 1, ONE: -constant})
        self._state.append(x)
        self._rounds.append(Round(factors, word, sibling, constant))

    def tile(self) -> Tile:
        n_wires = len(self._bits) - 1
        rows = zip(self._a, self._b, self._c, strict=True)
        highest = [max([ONE, *a, *b, *c]) for a, b, c in rows]
        samples = np.zeros((SAMPLES, n_wires, limbs.FR_LIMBS), np.uint64)
        for i, bits in enumerate(self._bits[1:]):
            if bits is not None:
                samples[:, i, 0] = bits
        return Tile(
            curve=self._curve,
            constraints=from_rows(self._curve, n_wires + 1, 0, self._a, self._b, self._c),
            wires_after=np.maximum.accumulate(np.array([ONE, *highest])),
            samples=samples.view(VALUE)[..., 0],
            packed=tuple(self._words),
            rounds=tuple(self._rounds),
            field_wires=np.array([wire for wire, bits in enumerate(self._bits) if bits is None]),
        )

    def _new(self, bits: Bits | None) -> int:
        self._bits.append(bits)
        return len(self._bits) - 1

    def _row(self, a: Row, b: Row, c: Row) -> None:
        for rows, row in ((self._a, a), (self._b, b), (self._c, c)):
            rows.append(row)

    def _of(self, wire: int) -> Bits:
        bits = self._bits[wire]
        assert bits is not None, f"wire {wire} carries a field element"
        return bits

    def _packed(self, word: Word) -> NDArray[np.int64]:
        """The number that a word is, in each sample."""
        bits = np.stack([self._of(wire) for wire in word], axis=1).astype(np.int64)
        return bits @ (1 << np.arange(len(word)))


def _rotated(word: Word, by: int) -> Word:
    return word[by:] + word[:by]


def _number(name: str) -> int:
    """512 bits that follow from a name."""
    return int.from_bytes(hashlib.blake2b(name.encode()).digest(), "big")
