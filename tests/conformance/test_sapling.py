"""A key of a real ceremony: Zcash's Sapling Output circuit. Main-net proofs verify under it, and so does one of ours.

Who vouches for what: the key's digest is the published one; the constraint system has the hash that Zcash's own tests
expect of the circuit; the proofs were mined. py_ecc, written by others in plain Python, has the last word on ours.
"""

import hashlib
import json
import lzma
from pathlib import Path

import numpy as np
import pytest
from py_ecc import optimized_bls12_381 as ecc

from cuzkd.backend import cpu
from cuzkd.curves import params
from cuzkd.errors import InvalidInput, UnsatisfiedWitness
from cuzkd.formats import affine, bellman, bellman_vk, proof_bytes, r1cs, wtns
from cuzkd.groth16 import prover, verifier

pytestmark = pytest.mark.conformance

HERE = Path(__file__).parent.parent / "vectors" / "sapling_output"
PARAMS = HERE / "sapling-output.params"
BLS = params.CURVES["bls12_381"]
R = BLS.r


@pytest.fixture(scope="module")
def constraints(tmp_path_factory):
    path = tmp_path_factory.mktemp("sapling") / "circuit.r1cs"
    path.write_bytes(lzma.decompress((HERE / "circuit.r1cs.xz").read_bytes()))
    return r1cs.read(path)


@pytest.fixture(scope="module")
def key(constraints):
    return bellman.open_params(PARAMS, constraints)


@pytest.fixture(scope="module")
def witness():
    with wtns.map(HERE / "circuit.wtns") as file:
        return np.frombuffer(bytes(file.values), "<u8").reshape(-1, 4)


# -- the files are what they claim to be --


def test_the_key_is_the_published_one():
    data = PARAMS.read_bytes()
    assert hashlib.blake2b(data).hexdigest() == (
        "657e3d38dbb5cb5e7dd2970e8b03d69b4787dd907285b5a7f0790dcc8072f60b"
        "f593b32cc2d1c030e00ff5ae64bf84c5c3beb84ddc841d48264b4a171744d028"
    )
    head = bellman.read_params_head(PARAMS)
    assert head.curve == "bls12_381"
    assert dict(head.counts) == {"h": 8191, "l": 7821, "a": 6298, "b1": 4850, "b2": 4850}
    assert (len(head.vk.ic), head.trailing_bytes, head.transcript) == (6, 52836, 97)
    assert np.array_equal(head.vk.gamma_g2, affine.g2_to_array("bls12_381", BLS.g2))


def test_the_constraint_system_is_the_published_one(constraints):
    """bellman's hash of it, as Zcash's tests have it (sapling-crypto, src/circuit.rs)."""
    n_inputs = constraints.n_public + 1
    hasher = hashlib.blake2s(digest_size=32)

    def put(*numbers):
        for n in numbers:
            hasher.update(n.to_bytes(8, "big"))

    put(n_inputs, constraints.n_wires - n_inputs, constraints.n_constraints)
    matrices = [(m, values_of(m.table)) for m in (constraints.a, constraints.b, constraints.c)]
    for row in range(constraints.n_constraints):
        for matrix, values in matrices:
            begin, end = int(matrix.row_ptr[row]), int(matrix.row_ptr[row + 1])
            terms = sorted((int(matrix.cols[i]), values[matrix.coeff[i]]) for i in range(begin, end))
            put(len(terms))
            for wire, value in terms:
                hasher.update(b"I" if wire < n_inputs else b"A")
                put(wire if wire < n_inputs else wire - n_inputs)
                hasher.update(value.to_bytes(32, "big"))
    assert hasher.hexdigest() == "c26d5cdfe6ccd65c03390902c02e11393ea6bb96aae32a7f2ecb12eb9103faee"


def values_of(table):
    """Plain ints of a table that is twice Montgomery."""
    out = pow(1 << 512, -1, R)
    return [int.from_bytes(row.astype("<u8").tobytes(), "little") * out % R for row in table]


# -- proofs from the chain --


def square_root(n):
    """Tonelli and Shanks: r - 1 = 2^32 * odd."""
    odd = (R - 1) >> 32
    root, t, c, m = pow(n, (odd + 1) // 2, R), pow(n, odd, R), pow(7, odd, R), 32
    while t != 1:
        i, x = 0, t
        while x != 1:
            x, i = x * x % R, i + 1
        b = pow(c, 1 << (m - i - 1), R)
        root, c, m = root * b % R, b * b % R, i
        t = t * c % R
    return root


def jubjub(hexadecimal):
    """(u, v) of a compressed point of Jubjub, -u^2 + v^2 = 1 + d u^2 v^2: v little-endian, the sign of u on top."""
    number = int.from_bytes(bytes.fromhex(hexadecimal), "little")
    sign, v = number >> 255, number & ((1 << 255) - 1)
    d = -10240 * pow(10241, -1, R) % R
    u = square_root((v * v - 1) * pow(1 + d * v * v, -1, R) % R)
    return (u if u & 1 == sign else R - u), v


def mined():
    """(label, proof bytes, public inputs) of the outputs of main-net transactions."""
    for i, output in enumerate(json.loads((HERE / "proofs.json").read_text())):
        cmu = int.from_bytes(bytes.fromhex(output["cmu"]), "little")
        yield (
            f"{output['block']} {i}",
            bytes.fromhex(output["proof"]),
            [*jubjub(output["cv"]), *jubjub(output["epk"]), cmu],
        )


def test_main_net_proofs_verify():
    vk = bellman.read_params_head(PARAMS).vk
    cases = list(mined())
    assert len(cases) >= 6
    whole = b"".join(data for _, data, _ in cases)
    for proof, (label, data, publics) in zip(proof_bytes.split(vk.curve, whole), cases, strict=True):
        assert verifier.verify(vk, proof, publics), label
        assert proof_bytes.encode(proof) == data, label


def test_changed_main_net_proofs_do_not():
    vk = bellman.read_params_head(PARAMS).vk
    (_, data, publics), (_, other, _) = list(mined())[:2]
    proof = proof_bytes.decode(vk.curve, data)
    for i in range(len(publics)):
        changed = [(x + (i == k)) % R for k, x in enumerate(publics)]
        assert not verifier.verify(vk, proof, changed), i
    assert not verifier.verify(vk, proof, [publics[0] + R, *publics[1:]])
    for bent in (
        other,
        other[:48] + data[48:],
        data[:144] + other[144:],
        bytes([data[0] ^ 0x20]) + data[1:],  # -A
        data[144:] + data[48:144] + data[:48],
    ):
        assert not verifier.verify(vk, proof_bytes.decode(vk.curve, bent), publics)
    for at in range(0, len(data), 5):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        try:
            read = proof_bytes.decode(vk.curve, bytes(flipped))
        except InvalidInput:
            continue
        assert not verifier.verify(vk, read, publics), at


# -- a proof of ours --


def py_ecc_accepts(vk, proof, publics):
    """The verification equation by another's pairing: e(A, B) e(-alpha, beta) e(-inputs, gamma) e(-C, delta) = 1."""

    def g1(point):
        x, y = affine.g1_from_array(vk.curve, point)
        return ecc.FQ(x), ecc.FQ(y), ecc.FQ(1)

    def g2(point):
        x, y = affine.g2_from_array(vk.curve, point)
        return ecc.FQ2(x), ecc.FQ2(y), ecc.FQ2((1, 0))

    inputs = g1(vk.ic[0])
    for x, point in zip(publics, vk.ic[1:], strict=True):
        inputs = ecc.add(inputs, ecc.multiply(g1(point), x))
    product = ecc.pairing(g2(proof.b), g1(proof.a), False)
    for q, p in ((vk.beta_g2, g1(vk.alpha_g1)), (vk.gamma_g2, inputs), (vk.delta_g2, g1(proof.c))):
        product *= ecc.pairing(g2(q), ecc.neg(p), False)
    return ecc.final_exponentiate(product) == ecc.FQ12.one()


def test_our_proof_convinces(key, witness):
    publics = [int.from_bytes(row.tobytes(), "little") for row in witness[1 : key.vk.n_public + 1]]
    proof = prover.prove(cpu.CpuBackend(), key.load(), witness)
    data = proof_bytes.encode(proof)
    read = proof_bytes.decode("bls12_381", data)
    changed = [*publics[:-1], (publics[-1] + 1) % R]
    assert verifier.verify(key.vk, read, publics)
    assert py_ecc_accepts(key.vk, read, publics)
    assert not verifier.verify(key.vk, read, changed)
    assert not py_ecc_accepts(key.vk, read, changed)


def test_a_wrong_witness_is_named(key, witness):
    wrong = witness.copy()
    wrong[4000, 0] ^= 1
    with pytest.raises(UnsatisfiedWitness, match=r"constraint \d+ of 7827 is not satisfied"):
        prover.prove(cpu.CpuBackend(), key.load(), wrong)


def test_written_out_it_is_the_same_file(key, tmp_path):
    data = PARAMS.read_bytes()
    head = bellman.read_params_head(PARAMS)
    end = len(data) - head.trailing_bytes
    bellman.write_params(tmp_path / "plain.params", key)
    assert (tmp_path / "plain.params").read_bytes() == data[:end]
    bellman.write_params(tmp_path / "whole.params", key, trailing=data[end:])
    assert (tmp_path / "whole.params").read_bytes() == data
    bellman_vk.write_vk(tmp_path / "out.vk", key)
    assert (tmp_path / "out.vk").read_bytes() == data[: 868 + 96 * 6]
