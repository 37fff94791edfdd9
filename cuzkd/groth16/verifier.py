"""The verifier: e(A, B) = e(alpha, beta) e(sum x_i ic_i, gamma) e(C, delta), Groth16 section 3.2.

Checked as one product of four pairings being 1, with one final exponentiation. Everything a stranger may have sent is
checked first: coordinates below q, points on their curves and in the subgroups of order r, public inputs below r (an
unreduced one would be a second name for the same statement: double spends came of that elsewhere).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cuzkd.backend import cpu
from cuzkd.backend.protocol import U64
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidInput
from cuzkd.groth16.keys import Proof, VerifyingKey


def verify(vk: VerifyingKey, proof: Proof, publics: Sequence[int]) -> bool:
    """Does the proof show the statement with these public inputs (plain ints, without the constant)?

    False for anything that is not a proof of it, garbage included. Raises InvalidInput when the question makes no
    sense: another number of public inputs than the key has, a proof over another curve.
    """
    curve = vk.curve
    if proof.curve != curve:
        raise InvalidInput(f"proof: expected curve {curve} (the verification key's), got {proof.curve}")
    if len(publics) != vk.n_public:
        raise InvalidInput(
            f"public inputs: expected {vk.n_public} (the verification key's), got {len(publics)}"
        )
    r = CURVES[curve].r
    if not all(0 <= x < r for x in publics):
        return False
    g1, g2 = np.stack([proof.a, proof.c]), proof.b[None]
    if (
        cpu.check_points(curve, "g1", g1, subgroup=True) >= 0
        or cpu.check_points(curve, "g2", g2, subgroup=True) >= 0
    ):
        return False
    host = cpu.CpuBackend()
    statement = host.msm(curve, "g1", vk.ic, _scalars([1, *publics]))
    minus = host.point_op(curve, "g1", "neg", np.stack([vk.alpha_g1, statement, proof.c]))
    return cpu.pairing_check(
        curve,
        np.concatenate([proof.a[None], minus]),
        np.stack([proof.b, vk.beta_g2, vk.gamma_g2, vk.delta_g2]),
    )


def _scalars(values: Sequence[int]) -> U64:
    """Plain ints below 2^256 as CANONICAL uint64[n, 4]."""
    data = b"".join(value.to_bytes(32, "little") for value in values)
    return np.frombuffer(data, "<u8").astype(np.uint64).reshape(-1, 4)
