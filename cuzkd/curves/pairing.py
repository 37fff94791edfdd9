"""The optimal ate pairing of both curves by plain ints: clear, slow (0.3 s), the oracle of the native one.

Fq12 = Fq[w]/(w^12 - 2 a w^6 + a^2 + 1) for xi = a + u, as w^6 = xi: an element is a list of 12 ints, the coefficient of
w^k at k, and c0 + c1 u in Fq2 is (c0 - a c1) + c1 w^6. A point (x, y) of the twist stands for the point
(x w^2, y w^3) of the curve over Fq12 (D-type twist), or (x w^-2, y w^-3) (M-type).

Vercauteren, "Optimal pairings" (https://eprint.iacr.org/2008/096); for Barreto-Naehrig curves the loop runs over 6x + 2
and two more lines follow, at the images of Q under Frobenius. The loop takes the absolute value of its count and the
final power is exactly (q^12 - 1)/r, so that values are those of py_ecc; for bls12_381 (x < 0) others have the inverse.
"""

from __future__ import annotations

from collections.abc import Iterable

from cuzkd.curves import points
from cuzkd.curves.fields import Fp2, Quadratic
from cuzkd.curves.params import CURVES, Curve

Fq12 = list[int]
G1 = tuple[int, int] | None
G2 = tuple[Fp2, Fp2] | None
ONE: Fq12 = [1] + [0] * 11


def pairing(curve: str, p: G1, q: G2) -> Fq12:
    """e(p, q), canonical, the coefficient of w^k at k. Points have to be in their subgroups of order r."""
    return _final_power(CURVES[curve], _miller(CURVES[curve], p, q))


def pairing_check(curve: str, pairs: Iterable[tuple[G1, G2]]) -> bool:
    """Is the product of e(p, q) over all pairs one? One final power for all."""
    c, product = CURVES[curve], ONE
    for p, q in pairs:
        product = mul(c, product, _miller(c, p, q))
    return _final_power(c, product) == ONE


def mul(c: Curve, a: Fq12, b: Fq12) -> Fq12:
    """a b in Fq12: schoolbook, then w^12 = 2 a w^6 - (a^2 + 1) from the top down."""
    wide = [0] * 23
    for i, x in enumerate(a):
        if x:
            for j, y in enumerate(b):
                wide[i + j] += x * y
    xi0 = c.xi[0]
    for k in range(22, 11, -1):
        wide[k - 6] += 2 * xi0 * wide[k]
        wide[k - 12] -= (xi0 * xi0 + 1) * wide[k]
    return [x % c.q for x in wide[:12]]


def power(c: Curve, a: Fq12, e: int) -> Fq12:
    """a^e for e >= 0."""
    result = ONE
    for bit in bin(e)[2:]:
        result = mul(c, result, result)
        if bit == "1":
            result = mul(c, result, a)
    return result


def _final_power(c: Curve, f: Fq12) -> Fq12:
    return power(c, f, (c.q**12 - 1) // c.r)


def _miller(c: Curve, p: G1, q: G2) -> Fq12:
    """The Miller loop: f doubles with the tangent at T, and takes the chord through T and Q where a bit is set."""
    if p is None or q is None:
        return ONE
    f, t = ONE, q
    for bit in bin(c.ate_loop)[3:]:
        line, t = _step(c, t, t, p)
        f = mul(c, mul(c, f, f), line)
        if bit == "1":
            line, t = _step(c, t, q, p)
            f = mul(c, f, line)
    if c.bn_lines:
        field = Quadratic(c.q)
        q1 = _frobenius(c, q)
        x2, y2 = _frobenius(c, q1)
        line, t = _step(c, t, q1, p)
        f = mul(c, f, line)
        line, _ = _step(c, t, (x2, field.neg(y2)), p)
        f = mul(c, f, line)
    return f


def _step(
    c: Curve, t: tuple[Fp2, Fp2], s: tuple[Fp2, Fp2], p: tuple[int, int]
) -> tuple[Fq12, tuple[Fp2, Fp2]]:
    """The line through t and s (the tangent where they are equal), at p, and t + s. t = -s does not occur in the loop.

    On the twist the line has the slope m; on the curve over Fq12 it is y_p - m w x_p + (m x_t - y_t) w^3, with w^-1 and
    w^-3 in place of w and w^3 for an M-type twist.
    """
    f, (x1, y1), (x2, y2) = Quadratic(c.q), t, s
    if t == s:
        m = f.mul(f.scale(3, f.mul(x1, x1)), f.inv(f.scale(2, y1)))
    else:
        m = f.mul(f.sub(y2, y1), f.inv(f.sub(x2, x1)))
    total = points.g2(c.name).add(t, s)
    assert total is not None, "the loop count is below the order of the point"
    by_w, by_w3 = f.scale(-p[0], m), f.sub(f.mul(m, x1), y1)
    if c.twist == "D":
        line = _add(_embed(c, by_w, 1), _embed(c, by_w3, 3))
    else:  # w^-1 = w^5/xi, w^-3 = w^3/xi
        inverse_xi = f.inv(c.xi)
        line = _add(_embed(c, f.mul(by_w, inverse_xi), 5), _embed(c, f.mul(by_w3, inverse_xi), 3))
    line[0] = (line[0] + p[1]) % c.q
    return line, total


def _frobenius(c: Curve, point: tuple[Fp2, Fp2]) -> tuple[Fp2, Fp2]:
    """(x, y) -> (x^q, y^q) on the curve over Fq12, in coordinates of a D-type twist: w^(q-1) = xi^((q-1)/6)."""
    f, (x, y) = Quadratic(c.q), point
    return (
        f.mul(f.conj(x), f.pow(c.xi, (c.q - 1) // 3)),
        f.mul(f.conj(y), f.pow(c.xi, (c.q - 1) // 2)),
    )


def _embed(c: Curve, a: Fp2, k: int) -> Fq12:
    """a w^k for k < 6."""
    out = [0] * 12
    out[k], out[k + 6] = (a[0] - c.xi[0] * a[1]) % c.q, a[1]
    return out


def _add(a: Fq12, b: Fq12) -> Fq12:
    return [x + y for x, y in zip(a, b, strict=True)]
