"""A circuit that needs no compiler, of any size: "I know x with digest(x) = y".

The digest is a chain of rounds over the scalar field, with its start added at the end so that it cannot be
run backwards:

    x_0 = x,  x_(i+1) = (x_i + k_i)^5,  y = x_n + x_0        k_i from blake2b; x^5 permutes both scalar fields

It shows the machinery; it is not a hash function to rely on. A round costs three constraints:

    s = x_i + k_i:   t = s s;   u = t t;   x_(i+1) = u s     (in the last round: u s = y - x_0)

Wires: 0 the constant, 1 the digest (public), 2 the preimage, then t, u, x_(i+1) of each round, but for the
last x. C is known here, so a witness is checked against it row by row before the device sees anything.
"""

from __future__ import annotations

import hashlib

from cuzkd.curves import params
from cuzkd.groth16.constraints import Constraints, Row, from_rows

ONE, DIGEST, PREIMAGE = 0, 1, 2
N_PUBLIC = 1


def round_constants(curve: str, n_rounds: int) -> list[int]:
    """k_0 .. k_(n-1): blake2b of the curve's name and the round's number, mod r."""
    r = params.CURVES[curve].r
    seeds = (hashlib.blake2b(f"cuzkd chain {curve} {i}".encode()).digest() for i in range(n_rounds))
    return [int.from_bytes(seed, "big") % r for seed in seeds]


def digest(curve: str, n_rounds: int, preimage: int) -> int:
    """y of the chain: what `witness` puts on wire 1, computed without wires."""
    r = params.CURVES[curve].r
    x = preimage
    for k in round_constants(curve, n_rounds):
        x = pow(x + k, 5, r)
    return (x + preimage) % r


def witness(curve: str, n_rounds: int, preimage: int) -> list[int]:
    """All wires for a preimage in [0, r), canonical: 3 n_rounds + 2 of them."""
    r = params.CURVES[curve].r
    if not 0 <= preimage < r:
        raise ValueError(f"preimage: expected a number in [0, r) of {curve}")
    x = preimage
    inner: list[int] = []
    for k in round_constants(curve, n_rounds):
        s = (x + k) % r
        t = s * s % r
        u = t * t % r
        x = u * s % r
        inner += [t, u, x]
    return [1, (x + preimage) % r, preimage, *inner[:-1]]


def constraints(curve: str, n_rounds: int) -> Constraints:
    """A, B and C of the chain, with the rows that bind the public wires: 3 n_rounds constraints. n_rounds >= 1."""
    if n_rounds < 1:
        raise ValueError(f"n_rounds: expected at least 1, got {n_rounds}")
    a: list[Row] = []
    b: list[Row] = []
    c: list[Row] = []
    x = PREIMAGE
    for i, k in enumerate(round_constants(curve, n_rounds)):
        t, u, after = (3 + j + 3 * i for j in range(3))
        s: Row = {ONE: k, x: 1}
        a += [s, {t: 1}, {u: 1}]
        b += [s, {t: 1}, s]
        c += [{t: 1}, {u: 1}, {after: 1}]
        x = after
    c[-1] = {DIGEST: 1, PREIMAGE: -1}
    return from_rows(curve, 3 * n_rounds + 2, N_PUBLIC, a, b, c)
