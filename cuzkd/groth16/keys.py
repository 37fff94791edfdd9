"""Keys and proofs of Groth16 ("On the Size of Pairing-based Non-interactive Arguments", section 3.2).

Names of that paper: tau (there x), alpha, beta, gamma, delta are the secrets of the set-up, destroyed after it;
u_i, v_i, w_i are the polynomials of wire i, whose values on the domain are the columns of A, B, C. [x]_1 is x times
the generator of G1. All points are affine, Montgomery, infinity all zero (`backend/protocol.py`).

A key object that exists has shapes and counts that agree: InvalidKey otherwise. Whether its points lie on their curves
is looked at once, when a circuit is added; whether what it shows is secure, `require_secure` says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from cuzkd.backend.protocol import QUERIES, U64, KeyArrays, KeyShape
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidKey
from cuzkd.groth16.constraints import Constraints


def _require_shapes(curve: str, parts: Mapping[str, tuple[U64, str, int | None]]) -> None:
    """parts: name -> (array, group, number of points, or None for a single one)."""
    if curve not in CURVES:
        raise InvalidKey(f"curve: expected one of {', '.join(CURVES)}, got '{curve}'")
    for name, (array, group, n) in parts.items():
        point = (2, CURVES[curve].fq_limbs) if group == "g1" else (2, 2, CURVES[curve].fq_limbs)
        shape = point if n is None else (n, *point)
        if array.shape != shape or array.dtype != np.uint64:
            raise InvalidKey(f"{name}: expected uint64{list(shape)}, got {array.dtype}{list(array.shape)}")


@dataclass(frozen=True)
class VerifyingKey:
    """What a verifier needs. Shapes: G1 [2, Lq], G2 [2, 2, Lq]."""

    curve: str
    alpha_g1: U64  # [alpha]_1
    beta_g2: U64  # [beta]_2
    gamma_g2: U64  # [gamma]_2, the generator in keys of snarkjs and of bellman's ceremonies
    delta_g2: U64  # [delta]_2
    ic: U64  # [n_public + 1, 2, Lq]: [(beta u_i + alpha v_i + w_i)/gamma]_1 of the constant and the public wires

    def __post_init__(self) -> None:
        if len(self.ic) == 0:
            raise InvalidKey("ic: expected at least the point of the constant wire, got none")
        _require_shapes(
            self.curve,
            {
                "alpha_g1": (self.alpha_g1, "g1", None),
                "beta_g2": (self.beta_g2, "g2", None),
                "gamma_g2": (self.gamma_g2, "g2", None),
                "delta_g2": (self.delta_g2, "g2", None),
                "ic": (self.ic, "g1", len(self.ic)),
            },
        )

    @property
    def n_public(self) -> int:
        return len(self.ic) - 1

    def require_secure(self) -> None:
        """Raises InvalidKey for a key under which proofs show nothing.

        gamma = delta: the second phase of the set-up was left out. Then the terms of public and private wires can be
        moved between each other, and from one true proof anybody makes proofs of other statements. Infinity: a term of
        the equation is missing.
        """
        for name in ("alpha_g1", "beta_g2", "gamma_g2", "delta_g2"):
            if not getattr(self, name).any():
                raise InvalidKey(f"{name} is the point at infinity: the key is not secure")
        if np.array_equal(self.gamma_g2, self.delta_g2):
            raise InvalidKey(
                "gamma_g2 equals delta_g2: this key has had no phase 2, and anybody can forge its proofs"
            )

    def digest(self) -> str:
        """Hex blake2b-256 of curve and points: the name of this key in results and logs."""
        h = hashlib.blake2b(self.curve.encode(), digest_size=32)
        for points in (self.alpha_g1, self.beta_g2, self.gamma_g2, self.delta_g2, self.ic):
            h.update(np.ascontiguousarray(points).data)
        return h.hexdigest()


@dataclass(frozen=True)
class KeyHead:
    """What synthesis and assembly need of a proving key: all but its bulk of points, which may be anywhere."""

    vk: VerifyingKey
    beta_g1: U64  # [beta]_1
    delta_g1: U64  # [delta]_1
    arrays: KeyShape
    constraints: Constraints

    def __post_init__(self) -> None:
        vk, arrays, rows = self.vk, self.arrays, self.constraints
        for name, values in (
            ("curve", (vk.curve, arrays.curve, rows.curve)),
            ("n_public", (vk.n_public, arrays.n_public, rows.n_public)),
            ("n_wires", (arrays.n_wires, rows.n_wires)),
        ):
            if len(set(values)) > 1:
                raise InvalidKey(f"{name}: the parts of the key disagree: {', '.join(map(str, values))}")
        two_adicity = CURVES[vk.curve].two_adicity
        if not 0 <= arrays.log_domain < two_adicity:
            raise InvalidKey(
                f"log_domain: expected below {two_adicity} on {vk.curve}, got {arrays.log_domain}"
            )
        if rows.n_rows > arrays.domain or arrays.n_rows not in (0, rows.n_rows):
            raise InvalidKey(
                f"n_rows: the matrices have {rows.n_rows}, the key says {arrays.n_rows}, the domain is {arrays.domain}"
            )
        _require_shapes(
            vk.curve, {"beta_g1": (self.beta_g1, "g1", None), "delta_g1": (self.delta_g1, "g1", None)}
        )

    def head(self) -> KeyHead:
        """Itself without points: what is left to be kept of a key whose points are elsewhere by now."""
        shape = KeyShape(**{field.name: getattr(self.arrays, field.name) for field in fields(KeyShape)})
        return KeyHead(self.vk, self.beta_g1, self.delta_g1, shape, self.constraints)

    def require_secure(self) -> None:
        """VerifyingKey.require_secure, and no infinity among the prover's own two points."""
        self.vk.require_secure()
        for name in ("beta_g1", "delta_g1"):
            if not getattr(self, name).any():
                raise InvalidKey(f"{name} is the point at infinity: the key is not secure")


@dataclass(frozen=True)
class StreamedKey(KeyHead):
    """A key that lies elsewhere, in a file perhaps: its head is here, its points come in blocks when asked for.

    queries: for each of QUERIES what begins a new reading of it. Blocks are [any number, *point], in order, and
    together as many as `arrays` says; reading raises what the format's reader raises.
    """

    queries: Mapping[str, Callable[[], Iterator[U64]]]

    def blocks(self, query: str) -> Iterator[U64]:
        return self.queries[query]()

    def load(self) -> ProvingKey:
        """All of it in memory."""
        parts: dict[str, Any] = {field.name: getattr(self.arrays, field.name) for field in fields(KeyShape)}
        for query in QUERIES:
            parts[query] = np.empty(self.arrays.shape_of(query), np.uint64)
            at = 0
            for block in self.blocks(query):
                parts[query][at : at + len(block)] = block
                at += len(block)
        return ProvingKey(self.vk, self.beta_g1, self.delta_g1, KeyArrays(**parts), self.constraints)


@dataclass(frozen=True)
class ProvingKey(KeyHead):
    """What a prover needs. The bulk (`arrays`, formulas there) is the backend's, the rest assembly's."""

    arrays: KeyArrays

    def __post_init__(self) -> None:
        super().__post_init__()
        for query in QUERIES:
            array, shape = getattr(self.arrays, query), self.arrays.shape_of(query)
            if array.shape != shape or array.dtype != np.uint64:
                raise InvalidKey(
                    f"{query}: expected uint64{list(shape)}, got {array.dtype}{list(array.shape)}"
                )

    def blocks(self, query: str) -> Iterator[U64]:
        """The points of one of QUERIES, as StreamedKey gives them: here in one block."""
        yield getattr(self.arrays, query)

    def digest(self) -> str:
        """Hex blake2b-256 of everything: verifying key, points, constraints. Reads the whole key."""
        a = self.arrays
        h = hashlib.blake2b(digest_size=32)
        h.update(f"{self.vk.digest()} {self.constraints.digest()} ".encode())
        h.update(f"{a.root_family} {a.reduction} {a.log_domain} {a.n_wires} {a.n_public}".encode())
        for points in (self.beta_g1, self.delta_g1, a.a_g1, a.b_g1, a.b_g2, a.l_g1, a.h_g1):
            h.update(np.ascontiguousarray(points).data)
        return h.hexdigest()


@dataclass(frozen=True)
class Proof:
    """a, c: G1 [2, Lq]; b: G2 [2, 2, Lq]."""

    curve: str
    a: U64  # [A]_1
    b: U64  # [B]_2
    c: U64  # [C]_1
