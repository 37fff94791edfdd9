"""Matrices from rows, and key objects that refuse to be inconsistent."""

from dataclasses import replace

import numpy as np
import pytest

from cuzkd.backend.protocol import SparseMatrix
from cuzkd.backend.reference import ReferenceBackend
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidInput, InvalidKey
from cuzkd.groth16.constraints import Constraints, from_rows


def entries(curve, matrix):
    """[(row, wire, value)], values decoded from twice Montgomery."""
    r, big_r = CURVES[curve].r, 1 << 256
    values = [v * pow(big_r, -2, r) % r for v in limbs.to_ints(matrix.table)]
    return [
        (row, int(matrix.cols[k]), values[matrix.coeff[k]])
        for row in range(matrix.n_rows)
        for k in range(int(matrix.row_ptr[row]), int(matrix.row_ptr[row + 1]))
    ]


def test_from_rows(curve):
    r = CURVES[curve].r
    made = from_rows(curve, 4, 1, [{0: -1, 3: r + 7}, {2: r}], [{1: 7}, {}], [{}, {3: 7, 0: r - 1}])
    assert (made.n_wires, made.n_public, made.n_rows, made.n_constraints) == (4, 1, 4, 2)
    assert entries(curve, made.a) == [(0, 0, r - 1), (0, 3, 7), (2, 0, 1), (3, 1, 1)]
    assert entries(curve, made.b) == [(0, 1, 7)]
    assert entries(curve, made.c) == [(1, 3, 7), (1, 0, r - 1)]
    for matrix in (made.a, made.b, made.c):
        assert (matrix.row_ptr.dtype, matrix.cols.dtype, matrix.coeff.dtype) == (
            np.uint64,
            np.uint32,
            np.uint32,
        )
        assert limbs.to_ints(matrix.table[:2]) == [(1 << 512) % r, -(1 << 512) % r]
        assert len(set(limbs.to_ints(matrix.table))) == len(matrix.table)


def test_products_are_those_of_the_rows(case):
    r = CURVES[case.curve].r
    z = case.witness
    c = case.constraints
    products = [
        limbs.from_montgomery(ReferenceBackend().spmv(case.curve, m, case.z), r) for m in (c.a, c.b, c.c)
    ]
    assert products[0] == [z[3], z[5], 1, z[1], z[2]]
    assert products[1] == [z[4], z[3] + 5, 0, 0, 0]
    assert products[2] == [z[5], z[1] + 3 * z[4], 0, 0, 0]


@pytest.mark.parametrize(
    ("n_constraints", "n_public", "log_domain"),
    [
        (0, 0, 1),
        (0, 1, 1),
        (1, 0, 1),
        (1, 1, 2),
        (2, 1, 2),
        (3, 0, 2),
        (3, 1, 3),
        (6, 1, 3),
        (7, 0, 3),
        (7, 1, 4),
        (8, 0, 4),
    ],
)
def test_domain_rule(curve, n_constraints, n_public, log_domain):
    """circom: 2^(floor(log2(n_constraints + n_public)) + 1), which always has room for n_public + 1 more rows; bellman:
    the least power of two that has. They differ by the circuit without constraints and publics alone.
    """
    rows = [{0: 1}] * n_constraints
    made = from_rows(curve, 3, n_public, rows, rows, rows)
    assert made.log_domain("circom") == log_domain and made.n_rows <= 1 << log_domain
    least = next(k for k in range(9) if 1 << k >= made.n_rows)
    assert made.log_domain("bellman") == least == (log_domain if made.n_rows > 1 else 0)


def test_refused_rows(curve):
    with pytest.raises(InvalidInput, match="A has 1, B 0"):
        from_rows(curve, 2, 0, [{}], [], [{}])
    with pytest.raises(InvalidInput, match="B: row 1: expected a wire below 2, got 2"):
        from_rows(curve, 2, 0, [{}, {}], [{}, {2: 1}], [{}, {}])
    with pytest.raises(InvalidInput, match="n_public"):
        from_rows(curve, 2, 2, [], [], [])


def test_digest_tells_every_part(case):
    c = case.constraints
    changed = np.array(c.a.coeff)
    changed[0] ^= 1
    cut = SparseMatrix(c.a.n_cols, c.a.row_ptr, c.a.cols, changed, c.a.table)
    others = [
        replace(c, c=None),
        replace(c, a=c.b, b=c.a),
        replace(c, n_public=1),
        replace(c, a=cut),
    ]
    digests = {x.digest() for x in (c, *others)}
    assert len(digests) == 5 and all(len(d) == 64 for d in digests)
    assert replace(c).digest() == c.digest()


def test_inconsistent_constraints(case):
    c = case.constraints
    short = SparseMatrix(7, c.b.row_ptr[:-1], c.b.cols, c.b.coeff, c.b.table)
    narrow = SparseMatrix(6, c.b.row_ptr, c.b.cols, c.b.coeff, c.b.table)
    for args, message in (
        (("bn255", 2, c.a, c.b, c.c), "curve"),
        ((c.curve, 2, c.a, short, c.c), "matrix B"),
        ((c.curve, 2, c.a, c.b, narrow), "matrix C"),
        ((c.curve, 7, c.a, c.b, c.c), "n_public"),
        ((c.curve, 5, c.a, c.b, c.c), "at least 6 rows"),
    ):
        with pytest.raises(InvalidKey, match=message):
            Constraints(*args)


def test_inconsistent_keys(case):
    key, vk, arrays = case.key, case.key.vk, case.key.arrays
    other = next(name for name in CURVES if name != case.curve)
    parts = [
        ({"vk": replace(vk, ic=vk.ic[:2])}, "n_public"),
        ({"constraints": replace(case.constraints, curve=other)}, "curve"),
        ({"arrays": replace(arrays, n_wires=6)}, "n_wires"),
        ({"arrays": replace(arrays, log_domain=2, h_g1=arrays.h_g1[:4])}, "n_rows"),
        ({"arrays": replace(arrays, log_domain=40)}, "log_domain"),
        ({"arrays": replace(arrays, n_rows=4)}, "n_rows"),
        ({"beta_g1": vk.beta_g2}, "beta_g1: expected uint64"),
        ({"delta_g1": key.delta_g1.astype(np.int64)}, "delta_g1: expected uint64"),
        *(({"arrays": replace(arrays, **{n: getattr(arrays, n)[1:]})}, f"{n}: expected")
          for n in ("a_g1", "b_g1", "b_g2", "l_g1", "h_g1")),
    ]  # fmt: skip
    for changes, message in parts:
        with pytest.raises(InvalidKey, match=message):
            replace(key, **changes)
    for changes, message in (
        ({"ic": vk.ic[:0]}, "at least the point of the constant"),
        ({"gamma_g2": vk.alpha_g1}, "gamma_g2: expected"),
        ({"curve": other}, "expected uint64"),
        ({"curve": "x"}, "curve"),
    ):
        with pytest.raises(InvalidKey, match=message):
            replace(vk, **changes)


def test_insecure_proving_keys(case):
    case.key.require_secure()
    for name in ("beta_g1", "delta_g1"):
        with pytest.raises(InvalidKey, match=f"{name} is the point at infinity"):
            replace(case.key, **{name: getattr(case.key, name) * 0}).require_secure()


def test_key_digests(case):
    key, vk = case.key, case.key.vk
    assert replace(key).digest() == key.digest() and replace(vk).digest() == vk.digest()
    assert replace(vk, ic=vk.ic[::-1]).digest() != vk.digest()
    others = [
        replace(
            key, arrays=replace(key.arrays, root_family=12 - key.arrays.root_family)
        ),  # 5 for 7, or 7 for 5
        replace(
            key, arrays=replace(key.arrays, reduction="bellman" if case.reduction == "circom" else "circom")
        ),
        replace(key, arrays=replace(key.arrays, h_g1=key.arrays.h_g1[::-1].copy())),
        replace(key, constraints=replace(key.constraints, c=None)),
        replace(key, delta_g1=key.beta_g1),
        replace(key, vk=replace(vk, ic=vk.ic[::-1].copy())),
    ]
    assert len({k.digest() for k in (key, *others)}) == 1 + len(others)
