"""What defines the two curves. Everything else is derived from these numbers.

bn254 ("alt_bn128", "bn128"; EIP-196, EIP-197): Barreto-Naehrig, x = 4965661367192848881, y^2 = x^3 + 3, about 100 bits
of security. Tower: Fq2 = Fq[u]/(u^2 + 1), Fq6 = Fq2[v]/(v^3 - xi), xi = 9 + u, Fq12 = Fq6[w]/(w^2 - v). D-type twist.

bls12_381 (https://github.com/zkcrypto/pairing, draft-irtf-cfrg-pairing-friendly-curves): Barreto-Lynn-Scott,
x = -0xd201000000010000, y^2 = x^3 + 4, about 120 bits of security. The same tower with xi = 1 + u. M-type twist.
"""

from __future__ import annotations

from dataclasses import dataclass

Fq2 = tuple[int, int]

# Quadratic non-residues mod r that tools derive their roots of unity from, each on both curves: 5 is circom's and
# snarkjs's (Fr.nqr of ffjavascript), 7 is bellman's (and arkworks's) on bls12_381.
ROOT_FAMILIES = (5, 7)


@dataclass(frozen=True)
class Curve:
    """Plain integers. q: base field; r: prime order of the groups and scalar field; x: the curve family's parameter.

    y^2 = x^3 + b over Fq and x^3 + b2 over Fq2, b2 = b/xi (twist "D") or b*xi ("M"). g1, g2: affine generators.
    h1, h2: cofactors; the curve has h1 r points over Fq, its twist h2 r over Fq2.
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
    h1: int
    h2: int

    @property
    def fq_limbs(self) -> int:
        """64-bit limbs of an element of Fq: 4 or 6. An element of Fr has 4 on both curves."""
        return (self.q.bit_length() + 63) // 64

    @property
    def two_adicity(self) -> int:
        """The largest k with 2^k | r - 1: domains have at most 2^k points."""
        return ((self.r - 1) & -(self.r - 1)).bit_length() - 1

    def root_of_unity(self, family: int, log_n: int) -> int:
        """family^((r-1)/2^log_n) mod r, of order exactly 2^log_n. Raises ValueError where there is none."""
        if family not in ROOT_FAMILIES:
            raise ValueError(f"root family: expected one of {ROOT_FAMILIES}, got {family}")
        if not 0 <= log_n <= self.two_adicity:
            raise ValueError(f"log_n: expected 0 to {self.two_adicity} on {self.name}, got {log_n}")
        return pow(family, (self.r - 1) >> log_n, self.r)


def _bn254() -> Curve:
    x = 4965661367192848881
    q = 36 * x**4 + 36 * x**3 + 24 * x**2 + 6 * x + 1
    r = 36 * x**4 + 36 * x**3 + 18 * x**2 + 6 * x + 1
    inverse_norm = pow(82, -1, q)
    return Curve(
        name="bn254",
        q=q,
        r=r,
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
        h1=1,
        h2=2 * q - r,
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
        h1=(x - 1) ** 2 // 3,
        h2=(x**8 - 4 * x**7 + 5 * x**6 - 4 * x**4 + 6 * x**3 - 4 * x**2 - 4 * x + 13) // 9,
    )


CURVES: dict[str, Curve] = {c.name: c for c in (_bn254(), _bls12_381())}


# The moduli as the world writes them: the formulas above have to lead there.
_MODULI = {
    "bn254": (
        0x30644E72E131A029B85045B68181585D97816A916871CA8D3C208C16D87CFD47,
        0x30644E72E131A029B85045B68181585D2833E84879B9709143E1F593F0000001,
    ),
    "bls12_381": (
        0x1A0111EA397FE69A4B1BA7B6434BACD764774B84F38512BF6730D2A0F6B0F6241EABFFFEB153FFFFB9FEFFFFFFFFAAAB,
        0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001,
    ),
}


def _mul2(a: Fq2, b: Fq2, q: int) -> Fq2:
    return (a[0] * b[0] - a[1] * b[1]) % q, (a[0] * b[1] + a[1] * b[0]) % q


def _check(c: Curve) -> None:
    """Constants check themselves when imported. The orders of the generators are checked by tests/curves."""
    assert (c.q, c.r) == _MODULI[c.name], f"{c.name}: moduli do not follow from x"
    for p in (c.q, c.r):
        assert pow(2, p - 1, p) == 1, f"{c.name}: a modulus is not prime"
    assert c.q % 4 == 3, f"{c.name}: u^2 = -1 needs q = 3 mod 4"
    assert (c.g1[1] ** 2 - c.g1[0] ** 3 - c.b) % c.q == 0, f"{c.name}: g1 is off the curve"
    (x, y), b2 = c.g2, c.b2
    cube = _mul2(_mul2(x, x, c.q), x, c.q)
    assert _mul2(y, y, c.q) == ((cube[0] + b2[0]) % c.q, (cube[1] + b2[1]) % c.q), (
        f"{c.name}: g2 is off the twist"
    )
    twisted = _mul2(b2, c.xi, c.q) if c.twist == "D" else _mul2((c.b, 0), c.xi, c.q)
    assert twisted == ((c.b, 0) if c.twist == "D" else b2), f"{c.name}: b2 does not follow from b and xi"
    # Hasse: the number of points is within 2 sqrt(field) of field + 1.
    for field, h in ((c.q, c.h1), (c.q**2, c.h2)):
        assert (h * c.r - field - 1) ** 2 <= 4 * field, f"{c.name}: a cofactor breaks the bound of Hasse"
    for family in ROOT_FAMILIES:
        assert pow(family, (c.r - 1) // 2, c.r) == c.r - 1, f"{c.name}: {family} is a square mod r"


for _c in CURVES.values():
    _check(_c)
