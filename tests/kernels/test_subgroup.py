"""Points of another order are found, and the first of them named, among few and among many, whatever they add up to."""

from dataclasses import dataclass

import numpy as np
import pytest
from kernels.conftest import known_points

from cuzkd.backend import cpu, reference
from cuzkd.curves import points as groups
from cuzkd.curves.params import CURVES

MANY = 5000  # more than are looked at one by one: FEW in kernels/cpu/subgroup.hpp


@dataclass(frozen=True)
class Place:
    """A group with strangers. good: MANY points of order r. torsion: a point whose order divides the cofactor; small:
    one of order 3, where the group has such. All as arrays.
    """

    curve: str
    group: str
    good: np.ndarray
    torsion: np.ndarray
    small: np.ndarray | None

    def first(self, points):
        return cpu.check_points(self.curve, self.group, points, subgroup=True)

    def op(self, op, p, q=None):
        return cpu.CpuBackend().point_op(self.curve, self.group, op, p, q)


def on_the_curve(curve, group):
    """A point of the curve with a small x, most likely of another order than r."""
    g, c = groups.group(curve, group), CURVES[curve]
    for x in range(1, 1000):
        if group == "g1":
            point = (x, pow(x**3 + c.b, (c.q + 1) // 4, c.q))
        else:
            # A square root in Fq2 by the norm, q being 3 mod 4.
            a, b = (x**3 + c.b2[0]) % c.q, c.b2[1]
            half = (a + pow(a * a + b * b, (c.q + 1) // 4, c.q)) * pow(2, -1, c.q) % c.q
            y0 = pow(half, (c.q + 1) // 4, c.q)
            point = ((x, 0), (y0, b * pow(2 * y0, -1, c.q) % c.q))
        if g.on_curve(point):
            return point
    raise AssertionError("no point found")


def times(g, k, point):
    """k times any point of the curve; g.mul takes k modulo r."""
    result = None
    for bit in bin(k)[2:]:
        result = g.add(g.double(result), point if bit == "1" else None)
    return result


@pytest.fixture(
    scope="module", params=[("bn254", "g2"), ("bls12_381", "g1"), ("bls12_381", "g2")], ids="-".join
)
def place(request):
    curve, group = request.param
    g = groups.group(curve, group)
    torsion = times(g, g.r, on_the_curve(curve, group))
    assert torsion is not None and times(g, g.cofactor, torsion) is None
    small = (0, 2) if request.param == ("bls12_381", "g1") else None
    assert small is None or (g.on_curve(small) and times(g, 3, small) is None)
    return Place(
        curve,
        group,
        known_points(curve, group, [0, 1, -1, 1, *range(MANY - 4)]),
        g.encode([torsion])[0],
        None if small is None else g.encode([small])[0],
    )


def test_good_points(place):
    """Infinity, equal and opposite points among them; as many as are looked at one by one, and one more."""
    for n in (0, 1, 20, 4096, 4097, MANY):
        assert place.first(place.good[:n]) == -1


def test_every_point_of_a_curve_with_r_points(rng):
    """bn254's G1: whatever lies on the curve is good."""
    g = groups.g1("bn254")
    assert g.cofactor == 1
    points = np.resize(g.encode([on_the_curve("bn254", "g1")]), (MANY, 2, 4))
    assert cpu.check_points("bn254", "g1", points, subgroup=True) == -1
    points[[4000, 70]] ^= np.uint64(1)
    assert cpu.check_points("bn254", "g1", points, subgroup=True) == 70


@pytest.mark.parametrize("n", [20, MANY])
def test_strangers_at_random_places(place, n, rng):
    """One alone, good points moved by one, and sets whose sum is of order r: opposite ones, three of order 3."""
    minus = place.op("neg", place.torsion[None])[0]
    sets = [[place.torsion], [place.torsion] * 2, [place.torsion, minus]]
    if place.small is not None:
        sets += [[place.small], [place.small] * 3, [place.small, place.torsion, minus]]
    for strangers in sets:
        points, at = place.good[:n].copy(), rng.sample(range(n), len(strangers))
        points[at] = place.op("add", points[at], np.stack(strangers))
        assert cpu.check_points(place.curve, place.group, points) == -1
        assert place.first(points) == min(at)


def test_many_strangers(place, rng):
    """All of them; every second one; those of a file that is wrong from some place on."""
    points = place.op("add", place.good, np.resize(place.torsion, place.good.shape))
    assert place.first(points) == 0
    mixed = place.good.copy()
    mixed[1::2] = points[1::2]
    assert place.first(mixed) == 1
    begin = rng.randrange(MANY)
    assert place.first(np.concatenate([place.good[:begin], points[begin:]])) == begin


def test_the_first_of_both_kinds(place):
    """A point off the curve and one of another order: whichever comes first."""
    for stranger, off in ((10, 4900), (4900, 10), (4900, 4901)):
        points = place.good.copy()
        points[stranger] = place.torsion
        points[off] ^= np.uint64(1)
        assert place.first(points) == min(stranger, off)
        assert cpu.check_points(place.curve, place.group, points) == off


def test_equals_the_definition(place, rng):
    """Point by point, in plain ints."""
    points = place.good[:24].copy()
    chosen = [i for i in range(24) if rng.random() < 0.5]
    points[chosen] = place.op("add", points[chosen], np.resize(place.torsion, points[chosen].shape))
    for i in range(24):
        one = points[i : i + 1]
        expected = reference.check_points(place.curve, place.group, one, subgroup=True)
        assert place.first(one) == expected == (0 if i in chosen else -1)


@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_threads(place, threads, rng):
    points, at = np.concatenate([place.good] * 3), rng.randrange(3 * MANY)
    points[at] = place.torsion
    width = cpu.threads()
    try:
        cpu.set_threads(threads)
        assert place.first(points) == at
    finally:
        cpu.set_threads(width)
