"""One proof: from a witness to five sums (a backend's work) to three points (ours). Groth16 section 3.2.

    A = alpha + sum z_i u_i + r delta                                        in G1
    B = beta  + sum z_i v_i + s delta                                        in G2
    C = sum_private z_i l_i + sum h_i H_i + s A + r B1 - r s delta           in G1, B1 being B in G1

r and s blind the proof: uniform in [0, r) and fresh for every proof, or the witness leaks. They are arguments here;
`prove` draws them from the operating system unless a test fixes them.
"""

from __future__ import annotations

import secrets

import numpy as np

from cuzkd.backend.protocol import U64, Backend, LoadedKey, MsmSums
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES
from cuzkd.errors import DeviceFault, InvalidWitness, UnsatisfiedWitness
from cuzkd.groth16 import hosts, verifier
from cuzkd.groth16.hosts import Host
from cuzkd.groth16.keys import KeyHead, Proof, ProvingKey


def assemble(key: KeyHead, sums: MsmSums, r: int, s: int, host: Host | None = None) -> Proof:
    """The proof from a backend's sums; r, s: plain ints in [0, order). Host code, about a millisecond."""
    vk = key.vk
    curve, order = vk.curve, CURVES[vk.curve].r
    backend = (host or hosts.best()).backend

    def combine(group: str, points: list[U64], scalars: list[int]) -> U64:
        return backend.msm(curve, group, np.stack(points), hosts.scalars([x % order for x in scalars]))

    # s A + r B1 - r s delta with A and B1 written out is s u + r v + r s delta: no sum waits for another.
    left = np.stack([vk.alpha_g1, key.beta_g1, sums.l_g1])
    u, v, w = backend.point_op(curve, "g1", "add", left, np.stack([sums.a_g1, sums.b_g1, sums.h_g1]))
    a = combine("g1", [u, key.delta_g1], [1, r])
    b = combine("g2", [vk.beta_g2, sums.b_g2, vk.delta_g2], [1, 1, s])
    c = combine("g1", [w, u, v, key.delta_g1], [1, s, r, r * s])
    return Proof(curve, a, b, c)


def prove(
    backend: Backend,
    key: ProvingKey,
    witness: U64,
    blinding: tuple[int, int] | None = None,
    host: Host | None = None,
) -> Proof:
    """Prove one witness, uint64[n_wires, 4] CANONICAL, and verify the proof: the way of a library, without a daemon.

    blinding: (r, s), for tests alone. Raises InvalidKey (an insecure key), InvalidWitness, UnsatisfiedWitness, and
    DeviceFault when the proof of a witness that satisfies all constraints does not verify.
    """
    loaded = backend.load_key(key.arrays)
    try:
        return prove_with(backend, key, loaded, witness, blinding, host)
    finally:
        loaded.close()


def prove_with(
    backend: Backend,
    key: KeyHead,
    loaded: LoadedKey,
    witness: U64,
    blinding: tuple[int, int] | None = None,
    host: Host | None = None,
) -> Proof:
    """As prove, with a key that the backend has loaded and keeps."""
    key.require_secure()
    host = host or hosts.best()
    arrays, constraints = key.arrays, key.constraints
    curve, order = arrays.curve, CURVES[arrays.curve].r
    z = _checked(key, witness, host)
    a, b, c = (np.zeros((backend.vector_rows(arrays), 4), np.uint64) for _ in range(3))
    for matrix, out in ((constraints.a, a), (constraints.b, b), (constraints.c, c)):
        if matrix is not None:
            host.services.spmv_into(curve, matrix, z, out, 0, constraints.n_rows)
    if constraints.c is not None:
        row = host.services.first_mismatch(curve, a, b, c, 0, constraints.n_rows)
        if row >= 0:
            raise UnsatisfiedWitness(f"constraint {row} of {constraints.n_constraints} is not satisfied")
    upload = backend.upload(loaded, a, b, c if backend.scratch_c else None, z)
    upload.wait()
    sums = backend.launch(upload).result()
    r, s = blinding or (secrets.randbelow(order), secrets.randbelow(order))
    proof = assemble(key, sums, r, s, host)
    if not verifier.verify(key.vk, proof, limbs.to_ints(z[1 : arrays.n_public + 1]), host):
        if constraints.c is not None:
            raise DeviceFault(
                f"the proof does not verify although the witness satisfies all constraints: backend {backend.name} "
                f"on {backend.device} computed wrongly, or the key is damaged"
            )
        raise UnsatisfiedWitness(
            "the proof does not verify: the witness breaks a constraint, or the key does not fit it"
        )
    return proof


def _checked(key: KeyHead, witness: U64, host: Host) -> U64:
    arrays = key.arrays
    if witness.shape != (arrays.n_wires, 4):
        raise InvalidWitness(
            f"witness: expected {arrays.n_wires} values, got an array of shape {witness.shape}"
        )
    z = np.empty((arrays.n_wires, 4), np.uint64)
    raw = np.ascontiguousarray(witness, np.uint64).view(np.uint8).reshape(-1)
    bad = host.services.copy_witness(arrays.curve, raw, z)
    if bad >= 0:
        raise InvalidWitness(f"witness: value {bad} is not below r of {arrays.curve}")
    if z[0].tolist() != [1, 0, 0, 0]:
        raise InvalidWitness("witness: value 0, the constant wire, is not 1")
    return z
