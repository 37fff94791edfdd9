"""Keys and proofs of Groth16 ("On the Size of Pairing-based Non-interactive Arguments", section 3.2).

Names of that paper: tau (there x), alpha, beta, gamma, delta are the secrets of the set-up, destroyed after it;
u_i, v_i, w_i are the polynomials of wire i, whose values on the domain are the columns of A, B, C. [x]_1 is x times
the generator of G1. All points are affine, Montgomery, infinity all zero (`backend/protocol.py`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from cuzkd.backend.protocol import U64, KeyArrays
from cuzkd.groth16.constraints import Constraints


@dataclass(frozen=True)
class VerifyingKey:
    """What a verifier needs. Shapes: G1 [2, Lq], G2 [2, 2, Lq]."""

    curve: str
    alpha_g1: U64  # [alpha]_1
    beta_g2: U64  # [beta]_2
    gamma_g2: U64  # [gamma]_2, the generator in keys of snarkjs and of bellman's ceremonies
    delta_g2: U64  # [delta]_2
    ic: U64  # [n_public + 1, 2, Lq]: [(beta u_i + alpha v_i + w_i)/gamma]_1 of the constant and the public wires

    @property
    def n_public(self) -> int:
        return len(self.ic) - 1

    def digest(self) -> str:
        """Hex blake2b-256 of curve and points: the name of this key in results and logs."""
        h = hashlib.blake2b(self.curve.encode(), digest_size=32)
        for points in (self.alpha_g1, self.beta_g2, self.gamma_g2, self.delta_g2, self.ic):
            h.update(np.ascontiguousarray(points).data)
        return h.hexdigest()


@dataclass(frozen=True)
class ProvingKey:
    """What a prover needs. The bulk (`arrays`, formulas there) is the backend's, the rest assembly's."""

    vk: VerifyingKey
    beta_g1: U64  # [beta]_1
    delta_g1: U64  # [delta]_1
    arrays: KeyArrays
    constraints: Constraints


@dataclass(frozen=True)
class Proof:
    """a, c: G1 [2, Lq]; b: G2 [2, 2, Lq]."""

    curve: str
    a: U64  # [A]_1
    b: U64  # [B]_2
    c: U64  # [C]_1
