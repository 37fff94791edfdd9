"""What defines the two curves. Everything else is derived from these numbers.

bn254 ("alt_bn128", "bn128"; EIP-196, EIP-197): Barreto-Naehrig, x = 4965661367192848881, y^2 = x^3 + 3, about 100 bits of
security. Tower: Fq2 = Fq[u]/(u^2 + 1), Fq6 = Fq2[v]/(v^3 - xi), xi = 9 + u, Fq12 = Fq6[w]/(w^2 - v). D-type twist.

bls12_381 (https://github.com/zkcrypto/pairing, draft-irtf-cfrg-pairing-friendly-curves): Barreto-Lynn-Scott,
x = -0xd201000000010000, y^2 = x^3 + 4, about 120 bits of security. The same tower with xi = 1 + u. M-type twist.
"""

from __future__ import annotations

from dataclasses import dataclass

Fq2 = tuple[int, int]


@dataclass(frozen=True)
class Curve:
    """Plain integers. q: base field; r: prime order of the groups and scalar field; x: the curve family's parameter.

    y^2 = x^3 + b over Fq and x^3 + b2 over Fq2, b2 = b/xi (twist "D") or b*xi ("M"). g1, g2: affine generators.
    ate_loop: Miller loop count of the optimal ate pairing (absolute value). bn_lines: the pairing adds the lines at the
    two Frobenius images of Q (Barreto-Naehrig curves).
    """

    name: str
    q: int
    r: int
    x: int
    b: int
    b2: Fq2
    xi: Fq2
    twist: str
    g1: tuple[int, int]
    g2: tuple[Fq2, Fq2]
    ate_loop: int
    bn_lines: bool


def _bn254() -> Curve:
    x = 4965661367192848881
    q = 36 * x**4 + 36 * x**3 + 24 * x**2 + 6 * x + 1
    inverse_norm = pow(82, -1, q)
    return Curve(
        name="bn254",
        q=q,
        r=36 * x**4 + 36 * x**3 + 18 * x**2 + 6 * x + 1,
        x=x,
        b=3,
        b2=(27 * inverse_norm % q, -3 * inverse_norm % q),
        xi=(9, 1),
        twist="D",
        g1=(1, 2),
        g2=(
            (
                10857046999023057135944570762232829481370756359578518086990519993285655852781,
                11559732032986387107991004021392285783925812861821192530917403151452391805634,
            ),
            (
                8495653923123431417604973247489272438418190587263600148770280649306958101930,
                4082367875863433681332203403145435568316851327593401208105741076214120093531,
            ),
        ),
        ate_loop=6 * x + 2,
        bn_lines=True,
    )


def _bls12_381() -> Curve:
    x = -0xD201000000010000
    r = x**4 - x**2 + 1
    return Curve(
        name="bls12_381",
        q=(x - 1) ** 2 * r // 3 + x,
        r=r,
        x=x,
        b=4,
        b2=(4, 4),
        xi=(1, 1),
        twist="M",
        g1=(
            3685416753713387016781088315183077757961620795782546409894578378688607592378376318836054947676345821548104185464507,
            1339506544944476473020471379941921221584933875938349620426543736416511423956333506472724655353366534992391756441569,
        ),
        g2=(
            (
                352701069587466618187139116011060144890029952792775240219908644239793785735715026873347600343865175952761926303160,
                3059144344244213709971259814753781636986470325476647558659373206291635324768958432433509563104347017837885763365758,
            ),
            (
                1985150602287291935568054521177171638300868978215655730859378665066344726373823718423869104263333984641494340347905,
                927553665492332455747201965776037880757740193453592970025027978793976877002675564980949289727957565575433344219582,
            ),
        ),
        ate_loop=-x,
        bn_lines=False,
    )


CURVES: dict[str, Curve] = {c.name: c for c in (_bn254(), _bls12_381())}


def _check(c: Curve) -> None:
    """Constants check themselves when imported."""
    for p in (c.q, c.r):
        assert pow(2, p - 1, p) == 1, c.name
    assert c.q % 4 == 3 and (c.g1[1] ** 2 - c.g1[0] ** 3 - c.b) % c.q == 0, c.name


for _c in CURVES.values():
    _check(_c)
