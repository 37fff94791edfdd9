"""What a proving key must satisfy before anything is proved with it: the thorough look that it gets once.

Problem: an off-curve point, a key whose phase 2 was left out (gamma = delta lets anybody forge), or a key
that belongs to another verification key shows elsewhere as proofs that do not verify, or does not show at
all.
Design: counts were checked by whoever made the key object; here come the points. All of them are checked
against the curve in native threads. The few points of the verifying key are also checked for their subgroups,
and by pairings for agreeing with each other. The many others are not: a proof made from a point outside the
subgroup fails verification, and no unverified proof leaves the daemon.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cuzkd.backend import cpu
from cuzkd.backend.protocol import U64
from cuzkd.curves import params
from cuzkd.errors import InvalidKey
from cuzkd.formats import affine
from cuzkd.groth16.keys import ProvingKey, VerifyingKey


def require_sound(key: ProvingKey, source: str, expected: VerifyingKey | None = None) -> None:
    """Raise InvalidKey, naming source and array, unless the key is sound (and equals `expected`, where
    given).
    """
    vk, arrays, curve = key.vk, key.arrays, key.arrays.curve
    single_g1 = {"alpha1": vk.alpha_g1, "beta1": key.beta_g1, "delta1": key.delta_g1}
    single_g2 = {"beta2": vk.beta_g2, "gamma2": vk.gamma_g2, "delta2": vk.delta_g2}
    try:
        key.require_secure()
    except InvalidKey as error:
        raise InvalidKey(f"{source}: {error}") from None
    for name, point in single_g1.items():
        _require_points(curve, "g1", point[None], f"{source}: {name}", subgroup=True)
    for name, point in single_g2.items():
        _require_points(curve, "g2", point[None], f"{source}: {name}", subgroup=True)
    _require_points(curve, "g1", vk.ic, f"{source}: IC", subgroup=True)
    _require_consistent(curve, single_g1, single_g2, source)
    if expected is not None:
        _require_same(vk, expected, source)
    for name, group, points in (
        ("A", "g1", arrays.a_g1), ("B1", "g1", arrays.b_g1), ("B2", "g2", arrays.b_g2),
        ("C", "g1", arrays.l_g1), ("H", "g1", arrays.h_g1),
    ):  # fmt: skip
        _require_points(curve, group, points, f"{source}: {name}", subgroup=False)


def _require_points(curve: str, group: str, points: U64, where: str, subgroup: bool) -> None:
    bad = cpu.check_points(curve, group, points, subgroup=subgroup)
    if bad >= 0:
        allowed = f"the r-subgroup of {group} of {curve}" if subgroup else f"{group} of {curve}"
        raise InvalidKey(f"{where}: point {bad} of {len(points)}: expected a point of {allowed}")


def _require_consistent(curve: str, in_g1: Mapping[str, U64], in_g2: Mapping[str, U64], source: str) -> None:
    """beta and delta occur in both groups: e(x G1, -G2) e(G1, x G2) = 1."""
    c = params.CURVES[curve]
    g1, (g2_x, g2_y) = affine.g1_to_array(curve, c.g1), c.g2
    minus_g2 = affine.g2_to_array(curve, (g2_x, (-g2_y[0] % c.q, -g2_y[1] % c.q)))
    for name in ("beta", "delta"):
        if not cpu.pairing_check(
            curve, np.stack([in_g1[f"{name}1"], g1]), np.stack([minus_g2, in_g2[f"{name}2"]])
        ):
            raise InvalidKey(f"{source}: {name}1 and {name}2 are not the same multiple of their generators")


def _require_same(vk: VerifyingKey, expected: VerifyingKey, source: str) -> None:
    if vk.curve != expected.curve:
        raise InvalidKey(
            f"{source}: expected a key over {expected.curve} (the verification key), found {vk.curve}"
        )
    if len(vk.ic) != len(expected.ic):
        raise InvalidKey(
            f"{source}: expected {len(expected.ic) - 1} public values (the verification key), "
            f"found {len(vk.ic) - 1}"
        )
    for name in ("alpha_g1", "beta_g2", "gamma_g2", "delta_g2", "ic"):
        if not np.array_equal(getattr(vk, name), getattr(expected, name)):
            raise InvalidKey(
                f"{source}: {name} differs from the verification key: they are not of one set-up"
            )
