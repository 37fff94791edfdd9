"""Fast transforms equal the definition; interpolation inverts; Lagrange values interpolate."""

import pytest

from cuzkd.curves import domains
from cuzkd.curves.domains import Domain
from cuzkd.curves.params import CURVES, ROOT_FAMILIES


@pytest.fixture(params=ROOT_FAMILIES)
def family(request):
    return request.param


@pytest.mark.parametrize("log_n", [0, 1, 2, 5])
@pytest.mark.parametrize("shift", [1, 7, None])
def test_equals_the_definition(curve, family, log_n, shift, rng):
    r = CURVES[curve].r
    domain = Domain(curve, family, log_n, shift or r - 2)
    values = [rng.choice([0, 1, r - 1, rng.randrange(r)]) for _ in range(1 << log_n)]
    assert domain.evaluate(values) == domain.evaluate_naive(values)
    assert domain.interpolate(values) == domain.interpolate_naive(values)
    assert domain.interpolate(domain.evaluate(values)) == values


def test_points(curve, family):
    domain = Domain(curve, family, 3, shift=5)
    points = domain.points()
    assert len(set(points)) == 8 and points[0] == 5
    assert {pow(x, 8, domain.r) for x in points} == {pow(5, 8, domain.r)}


def test_families_are_orders_of_the_same_points(curve):
    """There is only one group of each size; the generators differ (not in every small one)."""
    five, seven = Domain(curve, 5, 8).points(), Domain(curve, 7, 8).points()
    assert five != seven and sorted(five) == sorted(seven)


@pytest.mark.parametrize("shift", [1, 9])
def test_lagrange(curve, shift, rng):
    domain = Domain(curve, 5, 4, shift)
    r = domain.r
    coefficients, tau = [rng.randrange(r) for _ in range(16)], rng.randrange(r)
    basis = domain.lagrange_at(tau)
    assert sum(basis) % r == 1
    value = sum(x * y for x, y in zip(basis, domain.evaluate(coefficients), strict=True)) % r
    assert value == domains.horner(coefficients, tau, r)
    with pytest.raises(ValueError, match="outside the domain"):
        domain.lagrange_at(domain.points()[3])


def test_refusals(curve):
    c = CURVES[curve]
    with pytest.raises(ValueError, match="shift"):
        Domain(curve, 5, 3, shift=0)
    with pytest.raises(ValueError, match="log_n"):
        Domain(curve, 5, c.two_adicity + 1)
    for method in ("evaluate", "interpolate", "evaluate_naive", "interpolate_naive"):
        with pytest.raises(ValueError, match="expected 8, got 7"):
            getattr(Domain(curve, 5, 3), method)([0] * 7)


def test_batch_inverse(curve, rng):
    r = CURVES[curve].r
    values = [1, r - 1, *(rng.randrange(1, r) for _ in range(9))]
    assert domains.batch_inverse(values, r) == [pow(v, -1, r) for v in values]
    assert domains.batch_inverse([], r) == []
    with pytest.raises(ValueError):
        domains.batch_inverse([3, 0, 5], r)
