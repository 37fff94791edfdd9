"""Every point of a development key is what its formula says, from polynomials and Lagrange values in plain ints."""

from dataclasses import replace

import numpy as np
import pytest
from groth16.conftest import SECRETS, tiny

from cuzkd.backend import select
from cuzkd.backend.protocol import REDUCTIONS
from cuzkd.curves import domains, points
from cuzkd.curves.domains import Domain
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidInput, InvalidKey
from cuzkd.groth16 import hosts, prover, setup
from cuzkd.groth16.constraints import from_rows


def multiples(curve, group, scalars):
    g = points.group(curve, group)
    return g.encode([g.mul(k, g.generator) for k in scalars])


def columns_at_tau(curve, domain, rows, n_wires, tau):
    """u_i(tau) of each wire: the column over the domain, interpolated by the O(n^2) definition, at tau."""
    out = []
    for wire in range(n_wires):
        column = [row.get(wire, 0) for row in rows] + [0] * (domain.n - len(rows))
        out.append(domains.horner(domain.interpolate_naive(column), tau, domain.r))
    return out


def test_every_point(case):
    curve, r, k = case.curve, CURVES[case.curve].r, SECRETS
    family = 7 if (case.reduction, curve) == ("bellman", "bls12_381") else 5
    domain = Domain(curve, family, 3)
    bound = [{0: 1}, {1: 1}, {2: 1}]
    matrices = [
        [{3: 1}, {5: 1}, *bound],
        [{4: 1}, {3: 1, 0: 5}],
        [{5: 1}, {1: 1, 4: 3}],
    ]
    u, v, w = (columns_at_tau(curve, domain, rows, 7, k.tau) for rows in matrices)
    mixed = [(k.beta * x + k.alpha * y + z) % r for x, y, z in zip(u, v, w, strict=True)]
    per_delta = pow(k.delta, -1, r)
    if case.reduction == "circom":
        behind_h = Domain(curve, family, 4).lagrange_at(k.tau)[1::2]
    else:
        behind_h = [pow(k.tau, i, r) * (pow(k.tau, 8, r) - 1) for i in range(7)] + [0]

    key, arrays, vk = case.key, case.key.arrays, case.key.vk
    assert (arrays.reduction, arrays.root_family) == (case.reduction, family)
    assert (arrays.log_domain, arrays.n_rows) == (3, 5)
    for array, group, scalars in (
        (arrays.a_g1, "g1", u),
        (arrays.b_g1, "g1", v),
        (arrays.b_g2, "g2", v),
        (arrays.l_g1, "g1", [x * per_delta for x in mixed[3:]]),
        (arrays.h_g1, "g1", [x * per_delta for x in behind_h]),
        (vk.ic, "g1", mixed[:3]),
        (vk.alpha_g1[None], "g1", [k.alpha]),
        (vk.beta_g2[None], "g2", [k.beta]),
        (vk.gamma_g2[None], "g2", [1]),
        (vk.delta_g2[None], "g2", [k.delta]),
        (key.beta_g1[None], "g1", [k.beta]),
        (key.delta_g1[None], "g1", [k.delta]),
    ):
        assert np.array_equal(array, multiples(curve, group, scalars))
    assert (
        not arrays.a_g1[6].any() and not arrays.b_g2[6].any() and not arrays.l_g1[3].any()
    )  # the lonely wire


def test_hosts_make_the_same_key(case):
    key = setup.setup(case.constraints, SECRETS, hosts.best(), reduction=case.reduction)
    assert key.digest() == case.key.digest()


def test_keys_with_drawn_secrets_differ(case):
    one, two = (setup.setup(case.constraints, reduction=case.reduction) for _ in range(2))
    assert one.digest() != two.digest()
    for key in (one, two):
        key.require_secure()
        prover.prove(hosts.best().backend, key, case.z)


def test_refusals(curve):
    r = CURVES[curve].r
    made, _ = tiny(curve)
    with pytest.raises(InvalidInput, match="matrix C"):
        setup.setup(replace(made, c=None))
    with pytest.raises(InvalidKey, match="reduction: expected"):
        setup.setup(made, reduction="libsnark")
    bad = {"tau": 0, "alpha": r, "beta": 0, "delta": 1}
    for name, value in bad.items():
        with pytest.raises(InvalidInput, match=name):
            setup.setup(made, replace(SECRETS, **{name: value}))
    for log_n in (3, 4):  # a point of the domain, and one of its double
        inside = CURVES[curve].root_of_unity(5, log_n)
        with pytest.raises(InvalidInput, match="tau lies in the domain"):
            setup.setup(made, replace(SECRETS, tau=inside))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_no_constraints_at_all(curve, backend, reduction):
    """One row, that of the constant wire: for bellman a domain of one, and no H but infinity. A wire idles beside."""
    key = setup.setup(from_rows(curve, 2, 0, [], [], []), reduction=reduction)
    assert key.arrays.domain == (2 if reduction == "circom" else 1)
    assert reduction == "circom" or not key.arrays.h_g1.any()
    assert not key.arrays.a_g1[1].any() and not key.arrays.l_g1.any()
    prover.prove(select.load(backend), key, hosts.scalars([1, 5]))  # raises unless it verifies


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("n_rows", [15, 16, 17, 255, 256, 257])
def test_sizes_about_a_power_of_two(curve, n_rows, reduction):
    """n_rows with those that bind the constant and the public wire: squarings x, x^2, x^4, ..., the last one public."""
    r, n = CURVES[curve].r, n_rows - 2
    chain = [2, *range(3, n + 2), 1]
    rows = [{wire: 1} for wire in chain]
    made = from_rows(curve, n + 2, 1, rows[:-1], rows[:-1], rows[1:])
    assert made.n_rows == n_rows
    values = {wire: pow(3, 2**i, r) for i, wire in enumerate(chain)} | {0: 1}
    z = hosts.scalars([values[wire] for wire in range(n + 2)])
    key = setup.setup(made, reduction=reduction)
    prover.prove(hosts.best().backend, key, z)  # raises unless it verifies
