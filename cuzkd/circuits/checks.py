"""What a proving key must satisfy before anything is proved with it: the thorough look that it gets once.

Problem: an off-curve point, a point outside the subgroup, a key whose phase 2 was left out (gamma = delta lets
anybody forge), or a key that belongs to another circuit or another verification key shows elsewhere as proofs that
do not verify, or does not show at all. And keys are larger than memory.
Design: counts were checked by whoever made the key object. The few points of the head are looked at at once. The
many others pass by, block after block, on their way into the key file: each of them is checked against curve and
subgroup, and random sums are made of them on the way, from which pairings tell at the end whether B1 is B2, whether
A, B and H fit the constraint matrices (fits.py), and, where C is known, whether L, IC and C do (assignments.py). So a
key is read once, and what was checked is what was written.
Where C is not known, as with a .zkey alone, L and IC cannot be told from those of another C: of a wire that has a
point in A or B it is only known that they are not infinity, and of the others nothing at all.
Life: Checks(head) -> watch(query, its blocks) for each query, in any order -> conclude().
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cuzkd.backend.protocol import U64, SparseMatrix
from cuzkd.circuits.assignments import Assignment, assign
from cuzkd.circuits.fits import ROUNDS, Fit, random_scalars, widened
from cuzkd.curves import params
from cuzkd.errors import InvalidKey
from cuzkd.formats import affine
from cuzkd.groth16 import hosts
from cuzkd.groth16.constraints import Constraints
from cuzkd.groth16.keys import KeyHead, VerifyingKey

LETTERS = {"a_g1": "A", "b_g1": "B1", "b_g2": "B2", "l_g1": "C", "h_g1": "H"}  # as files call the queries
ROW_BLOCK = 1 << 20  # rows that are compared at a time
# (a sum's name, scalars of the query's points, perhaps narrow, which of them have a part)
Wanted = tuple[str, U64, NDArray[np.bool_] | None]


def require_sound_head(key: KeyHead, source: str, expected: VerifyingKey | None = None) -> None:
    """The single points and IC: on the curve, in the subgroup, consistent, secure, equal to `expected` where given.

    Raises InvalidKey, naming source and point.
    """
    vk, curve = key.vk, key.vk.curve
    single_g1 = {"alpha1": vk.alpha_g1, "beta1": key.beta_g1, "delta1": key.delta_g1}
    single_g2 = {"beta2": vk.beta_g2, "gamma2": vk.gamma_g2, "delta2": vk.delta_g2}
    try:
        key.require_secure()
    except InvalidKey as error:
        raise InvalidKey(f"{source}: {error}") from None
    for name, point in single_g1.items():
        _require_points(curve, "g1", point[None], f"{source}: {name}", 0, 1)
    for name, point in single_g2.items():
        _require_points(curve, "g2", point[None], f"{source}: {name}", 0, 1)
    _require_points(curve, "g1", vk.ic, f"{source}: IC", 0, len(vk.ic))
    for name in ("beta", "delta"):
        if not same_multiple(curve, single_g1[f"{name}1"], single_g2[f"{name}2"]):
            raise InvalidKey(f"{source}: {name}1 and {name}2 are not the same multiple of their generators")
    if expected is not None:
        _require_same(vk, expected, source)


class Checks:
    """families: the root families that H may be of; all but one are for formats that do not say. told(nbytes): called
    for each block of points that was looked at.

    Raises InvalidKey, naming source and what is wrong with it, here, while blocks are watched, and at the end.
    """

    def __init__(
        self,
        key: KeyHead,
        source: str,
        expected: VerifyingKey | None = None,
        families: Sequence[int] | None = None,
        told: Callable[[int], None] = lambda nbytes: None,
    ) -> None:
        require_sound_head(key, source, expected)
        self._key, self._source, self._told = key, source, told
        families = families or [key.arrays.root_family]
        self.fit = Fit(key.constraints, key.arrays, families)
        self.assignment: Assignment | None = None
        if key.constraints.c is not None:
            self.assignment = assign(key.constraints, key.arrays, families, self.fit.b.scalars)
        n_ic = len(key.vk.ic)
        self._in_a_or_b = np.zeros(key.arrays.n_wires, bool)  # wires whose points there are not all infinity
        self._in_ic_or_l = np.zeros(key.arrays.n_wires, bool)
        self._in_ic_or_l[:n_ic] = _finite(key.vk.ic)
        self._finite = {
            "a_g1": self._in_a_or_b,
            "b_g1": self._in_a_or_b,
            "l_g1": self._in_ic_or_l[n_ic:],
        }
        self._sums: dict[str, U64] = {}
        self._picked: dict[str, U64] = {}  # "A 5": a single point

    def watch(self, query: str, blocks: Iterator[U64]) -> Iterator[U64]:
        """The blocks of one query as they come, each of them looked at before it goes on."""
        curve, at = self._key.vk.curve, 0
        count = self._key.arrays.shape_of(query)[0]
        group, name = ("g2" if query == "b_g2" else "g1"), LETTERS[query]
        wanted = self._wanted(query)
        for label, _, _ in wanted:
            self._sums[label] = np.zeros(self._key.arrays.shape_of(query)[1:], np.uint64)
        for block in blocks:
            _require_points(curve, group, block, f"{self._source}: {name}", at, count)
            window = slice(at, at + len(block))
            if query in self._finite:
                self._finite[query][window] |= _finite(block)
            for label, scalars, mask in wanted:
                self._add(label, group, block, scalars[window], None if mask is None else mask[window])
            for wire in self._singles(query):
                if at <= wire < at + len(block):
                    self._picked[f"{name} {wire}"] = block[wire - at].copy()
            at += len(block)
            self._told(block.nbytes)
            yield block

    def conclude(self) -> int:
        """What all points together must satisfy. Returns the root family that H is of."""
        curve, sums = self._key.vk.curve, self._sums
        b2 = self._sum("g2", [f"B2 {number}" for number in range(ROUNDS + 1)])
        if not same_multiple(curve, sums["B1"], b2):
            raise InvalidKey(f"{self._source}: B1 and B2 are not the same multiples of their generators")
        left = [(sums[f"A {n}"], self._picked[f"B2 {t}"]) for n, t in enumerate(self.fit.a.partners)]
        left += [(self._picked[f"A {t}"], sums[f"B2 {n}"]) for n, t in enumerate(self.fit.b.partners)]
        family = self._family(left)
        self._require_no_infinity()
        if self.assignment is not None and not self._satisfied(self.assignment, family, b2):
            raise InvalidKey(
                f"{self._source}: L, IC or C: the key was not made for these constraints "
                "(C of the .r1cs, points L or IC differ)"
            )
        return family

    def _family(self, left: Sequence[tuple[U64, U64]]) -> int:
        """The roots with which A, B and H fit."""
        curve = self._key.vk.curve
        for family in self.fit.h:
            right = (_negative(curve, "g1", self._sums[f"H {family}"]), self._key.vk.delta_g2)
            if _is_one(curve, [*left, right]):
                return family
        raise InvalidKey(
            f"{self._source}: A, B and H do not fit the constraint matrices "
            f"(with roots of unity from {' or '.join(map(str, self.fit.h))}): they are of another circuit"
        )

    def _satisfied(self, assignment: Assignment, family: int, b2: U64) -> bool:
        """Does the equation of assignments.py hold? b2: <y1, B2>."""
        curve, vk, sums = self._key.vk.curve, self._key.vk, self._sums
        ic = hosts.best().backend.msm(curve, "g1", vk.ic, assignment.rho[: len(vk.ic)])
        factors = [b2, *(sums[f"B2 y{n}"] for n in range(1, len(assignment.y)))]
        pairs = [(sums[f"A z{n}"], factor) for n, factor in enumerate(factors)]
        pairs += [
            (_negative(curve, "g1", self._sum("g1", ["L rho", f"H of all {family}"])), vk.delta_g2),
            (_negative(curve, "g1", ic), vk.gamma_g2),
            (sums["A rho"], vk.beta_g2),
            (vk.alpha_g1, sums["B2 rho"]),
        ]
        return _is_one(curve, pairs)

    def _require_no_infinity(self) -> None:
        """beta u_i + alpha v_i + w_i is zero where u_i, v_i and w_i are, and else by a chance that never comes. Every
        public wire has a u_i, from the row that binds it.
        """
        lost = self._in_a_or_b & ~self._in_ic_or_l
        if lost.any():
            wire, n_ic = int(lost.argmax()), len(self._key.vk.ic)
            name, at, count = ("IC", wire, n_ic) if wire < n_ic else ("C", wire - n_ic, len(lost) - n_ic)
            raise InvalidKey(
                f"{self._source}: {name}: point {at} of {count} is infinity, but in A or B its wire has another point"
            )

    def _wanted(self, query: str) -> list[Wanted]:
        a, b = self.fit.a, self.fit.b
        wanted: dict[str, list[Wanted]] = {
            "a_g1": [(f"A {n}", a.scalars, a.round == n) for n in range(len(a.partners))],
            "b_g1": [("B1", b.scalars, None)],
            "b_g2": [(f"B2 {n}", b.scalars, b.round == n) for n in range(ROUNDS + 1)],
            "h_g1": [(f"H {family}", h, None) for family, h in self.fit.h.items()],
            "l_g1": [],
        }
        if (assignment := self.assignment) is not None:
            rho = assignment.rho
            wanted["a_g1"] += [(f"A z{n}", z, None) for n, z in enumerate(assignment.z)]
            wanted["a_g1"].append(("A rho", rho, None))
            # The first y is b.scalars.
            wanted["b_g2"] += [(f"B2 y{n}", y, None) for n, y in enumerate(assignment.y) if n > 0]
            wanted["b_g2"].append(("B2 rho", rho, None))
            wanted["h_g1"] += [(f"H of all {family}", h, None) for family, h in assignment.h.items()]
            wanted["l_g1"].append(("L rho", rho[len(self._key.vk.ic) :], None))
        return wanted[query]

    def _singles(self, query: str) -> Sequence[int]:
        return {"a_g1": self.fit.b.partners, "b_g2": self.fit.a.partners}.get(query, ())

    def _sum(self, group: str, labels: Sequence[str]) -> U64:
        total = self._sums[labels[0]]
        for label in labels[1:]:
            total = _add(self._key.vk.curve, group, total, self._sums[label])
        return total

    def _add(self, label: str, group: str, points: U64, scalars: U64, mask: NDArray[np.bool_] | None) -> None:
        if mask is not None and not mask.all():
            points, scalars = points[mask], scalars[mask]
        if len(points):
            curve = self._key.vk.curve
            part = hosts.best().backend.msm(curve, group, points, widened(scalars))
            self._sums[label] = _add(curve, group, self._sums[label], part)


def require_sound(
    key: KeyHead,
    blocks: Callable[[str], Iterator[U64]],
    source: str,
    expected: VerifyingKey | None = None,
    told: Callable[[int], None] = lambda nbytes: None,
) -> None:
    """Look at all of a key that lies there already. blocks: the points of each query."""
    checks = Checks(key, source, expected, told=told)
    for query in LETTERS:
        for _ in checks.watch(query, blocks(query)):
            pass
    checks.conclude()


def require_same_rows(found: Constraints, expected: Constraints, source: str, r1cs: str) -> None:
    """Are A and B those of another file? InvalidKey names the first constraint that differs.

    Rows are compared by their products with a random vector, so neither order nor repetition of entries matters.
    """
    for what in ("curve", "n_public", "n_wires", "n_constraints"):
        ours, theirs = getattr(found, what), getattr(expected, what)
        if ours != theirs:
            raise InvalidKey(
                f"{source}: {what}: expected {theirs} ({r1cs}), found {ours}: not of one circuit"
            )
    z = widened(random_scalars(found.n_wires))
    for begin in range(0, found.n_rows, ROW_BLOCK):
        end = min(begin + ROW_BLOCK, found.n_rows)
        for name, ours, theirs in (("A", found.a, expected.a), ("B", found.b, expected.b)):
            differ = (
                _rows(found.curve, ours, z, begin, end) != _rows(found.curve, theirs, z, begin, end)
            ).any(axis=1)
            if differ.any():
                row = begin + int(differ.argmax())
                raise InvalidKey(
                    f"{source}: constraint {row}: its row of {name} differs from that in {r1cs}: not of one circuit"
                )


def _rows(curve: str, matrix: SparseMatrix, z: U64, begin: int, end: int) -> U64:
    """Rows [begin, end) of matrix z."""
    window = replace(
        matrix, row_ptr=matrix.row_ptr[begin : end + 1]
    )  # which goes on pointing into all entries
    out = np.empty((end - begin, 4), np.uint64)
    hosts.best().services.spmv_into(curve, window, z, out, 0, end - begin)
    return out


def same_multiple(curve: str, in_g1: U64, in_g2: U64) -> bool:
    """Are two points the same multiple x of their generators? e(x G1, -G2) e(G1, x G2) = 1."""
    c = params.CURVES[curve]
    g1, (x, y) = affine.g1_to_array(curve, c.g1), c.g2
    minus_g2 = affine.g2_to_array(curve, (x, (-y[0] % c.q, -y[1] % c.q)))
    pairs = np.stack([in_g1, g1]), np.stack([minus_g2, in_g2])
    return hosts.best().services.pairing_check(curve, *pairs)


def _is_one(curve: str, pairs: Sequence[tuple[U64, U64]]) -> bool:
    """Is the product of the pairings of (in G1, in G2) one?"""
    g1, g2 = zip(*pairs, strict=True)
    return hosts.best().services.pairing_check(curve, np.stack(g1), np.stack(g2))


def _finite(points: U64) -> NDArray[np.bool_]:
    return np.asarray(points.any(axis=(1, 2)))


def _add(curve: str, group: str, p: U64, q: U64) -> U64:
    sum_: U64 = hosts.best().backend.point_op(curve, group, "add", p[None], q[None])[0]
    return sum_


def _negative(curve: str, group: str, p: U64) -> U64:
    negative: U64 = hosts.best().backend.point_op(curve, group, "neg", p[None])[0]
    return negative


def _require_points(curve: str, group: str, points: U64, where: str, first: int, count: int) -> None:
    """Points number `first` and on, of `count`."""
    bad = hosts.best().services.check_points(curve, group, points, subgroup=True)
    if bad >= 0:
        raise InvalidKey(
            f"{where}: point {first + bad} of {count}: expected a point of the r-subgroup of {group} of {curve}"
        )


def _require_same(vk: VerifyingKey, expected: VerifyingKey, source: str) -> None:
    if vk.curve != expected.curve:
        raise InvalidKey(
            f"{source}: expected a key over {expected.curve} (the verification key), found {vk.curve}"
        )
    if len(vk.ic) != len(expected.ic):
        raise InvalidKey(
            f"{source}: expected {len(expected.ic) - 1} public values (the verification key), "
            f"found {len(vk.ic) - 1}"
        )
    for name in ("alpha_g1", "beta_g2", "gamma_g2", "delta_g2", "ic"):
        if not np.array_equal(getattr(vk, name), getattr(expected, name)):
            raise InvalidKey(
                f"{source}: {name} differs from the verification key: they are not of one set-up"
            )
