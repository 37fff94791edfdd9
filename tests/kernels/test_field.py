"""Field operations equal those of plain ints, on all pairs of nasty values and on random ones."""

import itertools

import pytest
from kernels.conftest import nasty, same

from cuzkd.backend.reference import ReferenceBackend
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES

REFERENCE = ReferenceBackend()


def modulus(curve, fld):
    return CURVES[curve].r if fld == "fr" else CURVES[curve].q


def operands(curve, fld, rng, n_random=500):
    """Two arrays, Montgomery, and their shape's trailing part."""
    p = modulus(curve, fld)
    values = nasty(p)
    if fld == "fq2":
        short = [0, 1, p - 1, (p + 1) // 2, values[-1]]
        elements = list(itertools.product(short, short))
        elements += [(rng.randrange(p), rng.randrange(p)) for _ in range(25)]
        pairs = list(itertools.product(elements, elements))
        x, y = ([c for pair in pairs for c in pair[k]] for k in (0, 1))
        return (limbs.to_montgomery(v, p).reshape(-1, 2, limbs.limbs_of(p)) for v in (x, y))
    pairs = list(itertools.product(values, values))
    pairs += [(rng.randrange(p), rng.randrange(p)) for _ in range(n_random)]
    return (limbs.to_montgomery([pair[k] for pair in pairs], p) for k in (0, 1))


@pytest.mark.parametrize("fld", ["fr", "fq", "fq2"])
@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_binary(backend, curve, fld, op, rng):
    x, y = operands(curve, fld, rng)
    same(backend.field_op(curve, fld, op, x, y), REFERENCE.field_op(curve, fld, op, x, y))


@pytest.mark.parametrize("fld", ["fr", "fq", "fq2"])
@pytest.mark.parametrize("op", ["sqr", "neg", "from_mont"])
def test_unary(backend, curve, fld, op, rng):
    x, _ = operands(curve, fld, rng)
    same(backend.field_op(curve, fld, op, x), REFERENCE.field_op(curve, fld, op, x))


@pytest.mark.parametrize("fld", ["fr", "fq", "fq2"])
def test_forms(backend, curve, fld, rng):
    x, _ = operands(curve, fld, rng)
    canonical = backend.field_op(curve, fld, "from_mont", x)
    same(backend.field_op(curve, fld, "to_mont", canonical), x)


@pytest.mark.parametrize("fld", ["fr", "fq", "fq2"])
def test_inverse(backend, curve, fld, rng):
    """Also of small numbers and of powers of two, where a binary GCD ends early or late."""
    p = modulus(curve, fld)
    values = (
        nasty(p)
        + [pow(2, k, p) for k in range(0, 400, 7)]
        + list(range(3, 40))
        + [p - k for k in range(3, 40)]
    )
    values += [rng.randrange(p) for _ in range(100)]
    x = limbs.to_montgomery(values[: len(values) // 2 * 2], p)
    if fld == "fq2":
        x = x.reshape(-1, 2, x.shape[-1])
    same(backend.field_op(curve, fld, "inv", x), REFERENCE.field_op(curve, fld, "inv", x))


def test_many_products(backend, curve, rng):
    """More than one chunk of threads, and a law: (x y) y^-1 = x."""
    p = CURVES[curve].q
    x = limbs.to_montgomery([rng.randrange(p) for _ in range(3000)], p)
    y = limbs.to_montgomery([rng.randrange(1, p) for _ in range(3000)], p)
    product = backend.field_op(curve, "fq", "mul", x, y)
    same(backend.field_op(curve, "fq", "mul", product, backend.field_op(curve, "fq", "inv", y)), x)


def test_empty(backend, curve):
    none = limbs.to_montgomery([], CURVES[curve].r).reshape(0, 4)
    assert backend.field_op(curve, "fr", "add", none, none).shape == (0, 4)
