"""Verification that shares no arithmetic with cuzkd: py_ecc over BN254, arkworks over BLS12-381."""

from __future__ import annotations

from cuzkd.curves import points
from cuzkd.groth16.keys import Proof, VerifyingKey


def holds(vk: VerifyingKey, proof: Proof, publics: list[int]) -> bool:
    """e(A, B) = e(alpha, beta) e(sum x_i ic_i, gamma) e(C, delta)"""
    return (_by_py_ecc if vk.curve == "bn254" else _by_arkworks)(vk, proof, publics)


def _plain(vk, proof):
    g1, g2 = points.g1(vk.curve), points.g2(vk.curve)
    a, c, alpha, *ic = (g1.decode(p[None])[0] for p in (proof.a, proof.c, vk.alpha_g1, *vk.ic))
    b, beta, gamma, delta = (g2.decode(p[None])[0] for p in (proof.b, vk.beta_g2, vk.gamma_g2, vk.delta_g2))
    return a, b, c, alpha, beta, gamma, delta, ic


def _by_py_ecc(vk, proof, publics):
    from py_ecc import optimized_bn128 as ecc

    def g1(point):
        return ecc.Z1 if point is None else (ecc.FQ(point[0]), ecc.FQ(point[1]), ecc.FQ(1))

    def g2(point):
        return ecc.Z2 if point is None else (ecc.FQ2(point[0]), ecc.FQ2(point[1]), ecc.FQ2.one())

    a, b, c, alpha, beta, gamma, delta, ic = _plain(vk, proof)
    statement = g1(ic[0])
    for x, point in zip(publics, ic[1:], strict=True):
        statement = ecc.add(statement, ecc.multiply(g1(point), x))
    pairs = [(b, ecc.neg(g1(a))), (beta, g1(alpha)), (gamma, statement), (delta, g1(c))]
    product = ecc.FQ12.one()
    for q, p in pairs:
        product *= ecc.pairing(g2(q), p, final_exponentiate=False)
    return ecc.final_exponentiate(product) == ecc.FQ12.one()


def _by_arkworks(vk, proof, publics):
    import py_arkworks_bls12381 as ark

    def big(*numbers):
        return b"".join(n.to_bytes(48, "big") for n in numbers)

    def g1(point):
        return ark.G1Point.identity() if point is None else ark.G1Point.from_xy_bytes_be(big(*point))

    def g2(point):
        if point is None:
            return ark.G2Point.identity()
        (x0, x1), (y0, y1) = point
        return ark.G2Point.from_xy_bytes_be(big(x0, x1, y0, y1))

    a, b, c, alpha, beta, gamma, delta, ic = _plain(vk, proof)
    statement = g1(ic[0])
    for x, point in zip(publics, ic[1:], strict=True):
        statement = statement + g1(point) * ark.Scalar(x)
    left = [-g1(a), g1(alpha), statement, g1(c)]
    return ark.GT.pairing_check(left, [g2(b), g2(beta), g2(gamma), g2(delta)])
