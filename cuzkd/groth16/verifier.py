"""The verifier: e(A, B) = e(alpha, beta) e(sum x_i ic_i, gamma) e(C, delta), Groth16 section 3.2.

Checked as one product of four pairings being 1, with one final exponentiation. Everything a stranger may have sent is
checked first: coordinates below q, points on their curves and in the subgroups of order r, public inputs below r (an
unreduced one would be a second name for the same statement: double spends came of that elsewhere).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidInput, InvalidKey
from cuzkd.groth16 import hosts
from cuzkd.groth16.hosts import Host
from cuzkd.groth16.keys import Proof, VerifyingKey


def verify(vk: VerifyingKey, proof: Proof, publics: Sequence[int], host: Host | None = None) -> bool:
    """Does the proof show the statement with these public inputs (plain ints, without the constant)?

    False for anything that is not a proof of it, garbage included. Raises InvalidInput when the question makes no
    sense: another number of public inputs than the key has, a proof over another curve; InvalidKey for a key with
    points off the curve, or one under which anybody can prove anything (`VerifyingKey.require_secure`).
    """
    host = host or hosts.best()
    curve = vk.curve
    if proof.curve != curve:
        raise InvalidInput(f"proof: expected curve {curve} (the verification key's), got {proof.curve}")
    if len(publics) != vk.n_public:
        raise InvalidInput(
            f"public inputs: expected {vk.n_public} (the verification key's), got {len(publics)}"
        )
    vk.require_secure()
    _require_on_curve(vk, host)
    r = CURVES[curve].r
    if not all(0 <= x < r for x in publics):
        return False
    if (
        host.services.check_points(curve, "g1", np.stack([proof.a, proof.c]), subgroup=True) >= 0
        or host.services.check_points(curve, "g2", proof.b[None], subgroup=True) >= 0
    ):
        return False
    statement = host.backend.msm(curve, "g1", vk.ic, hosts.scalars([1, *publics]))
    minus = host.backend.point_op(curve, "g1", "neg", np.stack([vk.alpha_g1, statement, proof.c]))
    return host.services.pairing_check(
        curve,
        np.concatenate([proof.a[None], minus]),
        np.stack([proof.b, vk.beta_g2, vk.gamma_g2, vk.delta_g2]),
    )


def _require_on_curve(vk: VerifyingKey, host: Host) -> None:
    """The key is its owner's choice and trusted, but a damaged one must not look like a bad proof."""
    for name in ("alpha_g1", "beta_g2", "gamma_g2", "delta_g2"):
        group = name[-2:]
        if host.services.check_points(vk.curve, group, getattr(vk, name)[None]) >= 0:
            raise InvalidKey(f"{name}: expected a point of {group} of {vk.curve}")
    bad = host.services.check_points(vk.curve, "g1", vk.ic)
    if bad >= 0:
        raise InvalidKey(f"ic: point {bad} of {len(vk.ic)}: expected a point of g1 of {vk.curve}")
