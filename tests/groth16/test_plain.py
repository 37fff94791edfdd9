"""A whole proof in plain ints, judged by our own verifier and by an equation written with py_ecc alone."""

from dataclasses import replace

import numpy as np
import pytest

from cuzkd.backend.reference import ReferenceBackend
from cuzkd.curves import limbs, points
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidInput, InvalidKey, InvalidWitness, UnsatisfiedWitness
from cuzkd.groth16 import constraints, hosts, prover, verifier
from cuzkd.groth16.keys import ProvingKey


@pytest.fixture(scope="module")
def proof(case):
    return prover.prove(ReferenceBackend(), case.key, case.z, (1234, 5678), hosts.plain())


def holds_by_py_ecc(vk, proof, publics):
    """e(A, B) = e(alpha, beta) e(sum x_i ic_i, gamma) e(C, delta), every operation py_ecc's but the change of form."""
    from py_ecc import optimized_bls12_381, optimized_bn128

    library = {"bn254": optimized_bn128, "bls12_381": optimized_bls12_381}[vk.curve]

    def g1(array):
        x, y = limbs.from_montgomery(array, library.field_modulus)
        return library.FQ(x), library.FQ(y), library.FQ(1)

    def g2(array):
        c = limbs.from_montgomery(array, library.field_modulus)
        return library.FQ2(c[:2]), library.FQ2(c[2:]), library.FQ2.one()

    statement = g1(vk.ic[0])
    for x, point in zip(publics, vk.ic[1:], strict=True):
        statement = library.add(statement, library.multiply(g1(point), x))
    left = library.pairing(g2(proof.b), g1(proof.a))
    right = library.pairing(g2(vk.beta_g2), g1(vk.alpha_g1))
    right *= library.pairing(g2(vk.gamma_g2), statement)
    right *= library.pairing(g2(vk.delta_g2), g1(proof.c))
    return left == right


def test_a_proof_verifies_here_and_elsewhere(case, proof):
    assert verifier.verify(case.key.vk, proof, case.publics, hosts.plain())
    assert holds_by_py_ecc(case.key.vk, proof, case.publics)


def test_other_public_values_do_not(case, proof):
    """Also those of the value that no constraint knows: its binding row ties it to the proof."""
    vk = case.key.vk
    for wrong in ([85, 99], [84, 98], [99, 84]):
        assert not verifier.verify(vk, proof, wrong)
    assert not holds_by_py_ecc(vk, proof, [84, 98])
    assert not verifier.verify(vk, proof, [84, 98], hosts.plain())


def test_a_public_value_has_one_spelling(case, proof):
    r = CURVES[case.curve].r
    for host in (hosts.best(), hosts.plain()):
        assert not verifier.verify(case.key.vk, proof, [84, 99 + r], host)
        assert not verifier.verify(case.key.vk, proof, [84 - r, 99], host)


@pytest.mark.parametrize("host", [hosts.best, hosts.plain])
def test_tampered_proofs_do_not(case, proof, host):
    g1, g2, vk = points.g1(case.curve), points.g2(case.curve), case.key.vk
    other_g1, other_g2 = g1.encode([g1.generator])[0], g2.encode([g2.generator])[0]
    off_curve = proof.a.copy()
    off_curve[0, 0] ^= np.uint64(1)
    unreduced = limbs.from_ints([x + CURVES[case.curve].q for x in limbs.to_ints(proof.a)], proof.a.shape[-1])
    negated = host().backend.point_op(case.curve, "g1", "neg", proof.a[None])[0]
    tampered = {
        "another A": replace(proof, a=other_g1),
        "-A": replace(proof, a=negated),
        "another B": replace(proof, b=other_g2),
        "another C": replace(proof, c=other_g1),
        "A and C exchanged": replace(proof, a=proof.c, c=proof.a),
        "A off the curve": replace(proof, a=off_curve),
        "A not reduced": replace(proof, a=unreduced),
        "all infinity": replace(proof, a=proof.a * 0, b=proof.b * 0, c=proof.c * 0),
    }
    for what, bad in tampered.items():
        assert not verifier.verify(vk, bad, case.publics, host()), what


def test_a_point_of_another_order_does_not(case, proof):
    """B plus a point of the twist outside the subgroup: on the curve, so only the order tells."""
    g2 = points.g2(case.curve)
    stranger = None
    for x0 in range(1, 200):
        stranger = lift(g2, (x0, 1))
        if stranger is not None and not g2.in_subgroup(stranger):
            break
    assert stranger is not None and g2.on_curve(stranger)
    (b,) = g2.decode(proof.b[None])
    bad = replace(proof, b=g2.encode([g2.add(b, stranger)])[0])
    for host in (hosts.best(), hosts.plain()):
        assert host.services.check_points(case.curve, "g2", bad.b[None]) == -1
        assert not verifier.verify(case.key.vk, bad, case.publics, host)


def lift(group, x):
    """A point with this x, or None: the complex method for square roots in Fp2."""
    f = group.field
    a0, a1 = f.add(f.mul(f.mul(x, x), x), group.b)
    norm = pow(a0 * a0 + a1 * a1, (f.p + 1) // 4, f.p)
    for sign in (norm, -norm):
        y0 = pow((a0 + sign) * pow(2, -1, f.p), (f.p + 1) // 4, f.p)
        if y0:
            y = y0, a1 * pow(2 * y0, -1, f.p) % f.p
            if f.mul(y, y) == (a0, a1):
                return x, y
    return None


def test_blinding(case, proof):
    """Other r, s: another proof, as good. Drawn ones differ each time. r = s = 0 is a proof, too."""
    backend, vk = ReferenceBackend(), case.key.vk
    drawn = [prover.prove(backend, case.key, case.z) for _ in range(2)]
    zero = prover.prove(backend, case.key, case.z, (0, 0))
    again = prover.prove(backend, case.key, case.z, (1234, 5678))
    assert all(np.array_equal(getattr(again, f), getattr(proof, f)) for f in "abc")
    seen = {p.a.tobytes() + p.b.tobytes() + p.c.tobytes() for p in (proof, zero, *drawn)}
    assert len(seen) == 4
    assert all(verifier.verify(vk, p, case.publics) for p in (zero, *drawn))


@pytest.mark.parametrize("host", [hosts.best, hosts.plain])
@pytest.mark.parametrize("wire", [1, 3, 4, 5])
def test_a_wrong_witness_is_named_by_its_constraint(case, wire, host):
    z = case.z.copy()
    z[wire, 0] += np.uint64(1)
    with pytest.raises(UnsatisfiedWitness, match=r"constraint [01] of 2 is not satisfied"):
        prover.prove(ReferenceBackend(), case.key, z, None, host())


def test_without_c_only_verification_tells(case):
    known = case.constraints
    without = constraints.Constraints(case.curve, known.n_public, known.a, known.b, None)
    key = ProvingKey(case.key.vk, case.key.beta_g1, case.key.delta_g1, case.key.arrays, without)
    prover.prove(ReferenceBackend(), key, case.z)
    z = case.z.copy()
    z[5, 0] += np.uint64(1)
    with pytest.raises(UnsatisfiedWitness, match="does not verify"):
        prover.prove(ReferenceBackend(), key, z)


@pytest.mark.parametrize("host", [hosts.best, hosts.plain])
def test_witnesses_that_cannot_be(case, host):
    r = CURVES[case.curve].r
    unreduced, no_one = case.z.copy(), case.z.copy()
    unreduced[4] = hosts.scalars([4 + r])[0]
    no_one[0, 0] = 2
    for z, message in (
        (case.z[:-1], "expected 7 values"),
        (unreduced, "value 4 is not below r"),
        (no_one, "constant wire"),
    ):
        with pytest.raises(InvalidWitness, match=message):
            prover.prove(ReferenceBackend(), case.key, z, None, host())


def test_questions_without_sense(case, proof):
    vk = case.key.vk
    for publics in ([], [84], [84, 99, 0]):
        with pytest.raises(InvalidInput, match="expected 2"):
            verifier.verify(vk, proof, publics)
    other = next(name for name in CURVES if name != case.curve)
    with pytest.raises(InvalidInput, match="expected curve"):
        verifier.verify(vk, replace(proof, curve=other), case.publics)


def test_keys_that_prove_nothing_are_refused(case, proof):
    vk = case.key.vk
    damaged = vk.ic.copy()
    damaged[2, 1, 0] ^= np.uint64(4)
    for bad, message in (
        (replace(vk, delta_g2=vk.gamma_g2), "anybody can forge"),
        (replace(vk, alpha_g1=vk.alpha_g1 * 0), "alpha_g1 is the point at infinity"),
        (replace(vk, ic=damaged), "ic: point 2 of 3"),
        (replace(vk, beta_g2=vk.beta_g2 + np.uint64(1)), "beta_g2: expected a point"),
    ):
        with pytest.raises(InvalidKey, match=message):
            verifier.verify(bad, proof, case.publics)
    with pytest.raises(InvalidKey, match="anybody can forge"):
        prover.prove(ReferenceBackend(), replace(case.key, vk=replace(vk, delta_g2=vk.gamma_g2)), case.z)
