"""bellman's files as snarkjs writes and reads them, and its call data: ours are the same to the byte."""

import json

import numpy as np
import pytest
from conformance.conftest import VECTORS
from conformance.test_snarkjs_agrees import agree, prove, squares

from cuzkd.backend.protocol import QUERIES
from cuzkd.curves import params
from cuzkd.errors import InvalidKey, UnsatisfiedWitness
from cuzkd.formats import bellman, names, r1cs, snarkjs, solidity, wtns, zkey
from cuzkd.groth16 import setup
from cuzkd.groth16.constraints import from_rows

pytestmark = pytest.mark.conformance
CURVES = list(params.CURVES)
ROOTS_OF_SNARKJS = 5  # on both curves
OF_WIRES = [query for query in QUERIES if query != "h_g1"]


def small_key(curve, folder):
    """A .zkey with its witness and constraints: y = x^4, and a private wire that no constraint has."""
    constraints = from_rows(curve, 5, 1, [{2: 1}, {3: 1}], [{2: 1}, {3: 1}], [{3: 1}, {1: 1}])
    folder.mkdir()
    path, witness = folder / "small.zkey", folder / "small.wtns"
    zkey.write(path, setup.setup(constraints))
    wtns.write(witness, curve, [1, 7**4, 7, 7**2, 12345])
    return path, witness, constraints


def vector(name):
    folder = VECTORS / name
    return folder / "circuit.zkey", folder / "circuit.wtns", r1cs.read(folder / "circuit.r1cs")


def test_exports(tmp_path, call_snarkjs):
    small = {curve: small_key(curve, tmp_path / curve) for curve in CURVES}
    check_exports(
        small | {name: vector(name) for name in ("edge_pub100", "edge_nopub")}, tmp_path, call_snarkjs
    )


@pytest.mark.slow
def test_exports_of_a_thousand_constraints(tmp_path, call_snarkjs):
    check_exports(
        {name: vector(name) for name in ("merkle_1k", "merkle_1k_bls12381")}, tmp_path, call_snarkjs
    )


def check_exports(keys, folder, call_snarkjs):
    """.zkey to .params by snarkjs, read by us: the same points, proofs that snarkjs takes, and back the same file.

    keys: label -> (.zkey, .wtns, constraints).
    """

    def file(label, kind):
        return folder / f"{label}.{kind}"

    def call(do, label, **files):
        paths = {role: str(file(label, kind)) for role, kind in files.items()}
        return {"do": do, "zkey": str(keys[label][0])} | paths

    answers = call_snarkjs([call("export bellman", label, params="theirs") for label in keys])
    assert not any("error" in answer for answer in answers), answers
    read = {}
    for label, (path, _, constraints) in keys.items():
        original = zkey.read(path)
        head = bellman.read_params_head(file(label, "theirs"))
        key = bellman.open_params(file(label, "theirs"), constraints).load()
        assert key.arrays.root_family == ROOTS_OF_SNARKJS
        assert key.vk.digest() == head.vk.digest() == original.vk.digest()
        require_same_points(key, original)
        data = file(label, "theirs").read_bytes()
        trailing = data[len(data) - head.trailing_bytes :]
        bellman.write_params(file(label, "ours"), key, every_wire=True, trailing=trailing)
        assert file(label, "ours").read_bytes() == data, label
        read[label] = (original, key)

    answers = call_snarkjs([call("import bellman", label, params="ours", out="back") for label in keys])
    assert answers == [{"value": True}] * len(keys)
    cases = []
    for label, (original, key) in read.items():
        imported = zkey.read(
            file(label, "back")
        )  # without the last power of tau: another h, for the same proofs
        require_same_points(imported, original)
        vkey = json.loads(snarkjs.vkey_to_json(original.vk))
        for k in (key, imported):
            proof, publics = prove(k, keys[label][1])
            record, values = json.loads(snarkjs.proof_to_json(proof)), [str(x) for x in publics]
            cases.append((f"{label}, {k.arrays.reduction}", vkey, record, values, True))
            if values:
                wrong = [str(publics[0] + 1), *values[1:]]
                cases.append((f"{label}, {k.arrays.reduction}, changed", vkey, record, wrong, False))
    agree(call_snarkjs, cases)


def require_same_points(key, original):
    for query in OF_WIRES:
        assert np.array_equal(getattr(key.arrays, query), getattr(original.arrays, query)), query


@pytest.mark.parametrize("curve", CURVES)
def test_other_roots_prove_nothing(curve, tmp_path, call_snarkjs):
    """Nothing in the file says which roots of unity it is for; taken for another's, it makes no proof. (On BN254 the
    roots of both families are the same up to a domain of 32.)
    """
    constraints, values = squares(curve, 62)
    path, witness, exported = (tmp_path / name for name in ("k.zkey", "w.wtns", "theirs.params"))
    zkey.write(path, setup.setup(constraints))
    wtns.write(witness, curve, values)
    call_snarkjs([{"do": "export bellman", "zkey": str(path), "params": str(exported)}])
    without_c = zkey.read(path).constraints
    right, wrong = (bellman.open_params(exported, without_c, root).load() for root in (ROOTS_OF_SNARKJS, 7))
    prove(right, witness)
    with pytest.raises(UnsatisfiedWitness, match="or the key does not fit it"):
        prove(wrong, witness)


@pytest.mark.parametrize("curve", CURVES)
def test_contributions(curve, tmp_path, call_snarkjs):
    """A key of our set-up as .params, given a contribution by snarkjs: the new key proves, its transcript is read."""
    constraints, values = squares(curve, 6)
    made = setup.setup(constraints, reduction="bellman")
    first, second, witness = (tmp_path / name for name in ("0.params", "1.params", "w.wtns"))
    bellman.write_params(first, made, trailing=bytes(64) + bytes(4))
    wtns.write(witness, curve, values)
    assert bellman.read_params_head(first).transcript == 0
    call = {
        "do": "contribute bellman",
        "curve": names.IN_FILES[curve],
        "params": str(first),
        "out": str(second),
    }
    (answer,) = call_snarkjs([call])
    assert len(answer["value"]) == 128, answer

    head = bellman.read_params_head(second)
    assert head.transcript == 1
    assert head.vk.digest() != made.vk.digest()
    key = bellman.open_params(second, constraints).load()
    cases = []
    old, new = (json.loads(snarkjs.vkey_to_json(k.vk)) for k in (made, key))
    for label, k, vkey, other in (("before", made, old, new), ("after", key, new, old)):
        proof, publics = prove(k, witness)
        record, values = json.loads(snarkjs.proof_to_json(proof)), [str(x) for x in publics]
        cases += [(label, vkey, record, values, True), (f"{label}, other key", other, record, values, False)]
    agree(call_snarkjs, cases)

    data = bytearray(second.read_bytes())
    data[len(data) - head.trailing_bytes + 68 + 20] ^= 1
    second.write_bytes(data)
    with pytest.raises(InvalidKey, match="transcript: the last of 1 contributions made another delta_g1"):
        bellman.open_params(second, constraints)


def test_call_data(call_snarkjs):
    """What `snarkjs zkey export soliditycalldata` prints, to the letter, on both curves, and back."""
    calls, ours = [], []
    for proof_path in sorted(VECTORS.rglob("proof.json")):
        publics_path = proof_path.with_name("public.json")
        proof, publics = (json.loads(p.read_text()) for p in (proof_path, publics_path))
        calls.append({"do": "call data", "proof": proof, "publics": publics})
        curve = names.by_spelling(proof["curve"])
        read, values = snarkjs.read_proof(proof_path, curve), snarkjs.read_publics(publics_path, curve)
        text = solidity.call_data(read, values)
        again, values_again = solidity.parse_call_data(text, "call data", curve)
        assert values_again == values
        assert all(np.array_equal(getattr(again, n), getattr(read, n)) for n in "abc")
        ours.append({"value": text})
    assert len(calls) >= 4
    assert call_snarkjs(calls) == ours
