"""bellman's files as snarkjs writes and reads them, and its call data: ours are the same to the byte."""

import json

import numpy as np
import pytest
from conformance.conftest import VECTORS
from conformance.test_snarkjs_agrees import agree, bent, prove, squares

from cuzkd.curves import params
from cuzkd.errors import InvalidKey, UnsatisfiedWitness
from cuzkd.formats import bellman, names, r1cs, snarkjs, solidity, wtns, zkey
from cuzkd.groth16 import setup
from cuzkd.groth16.constraints import from_rows
from cuzkd.groth16.keys import QUERIES

pytestmark = pytest.mark.conformance
CURVES = list(params.CURVES)
ROOTS_OF_SNARKJS = 5  # on both curves
OF_WIRES = [query for query in QUERIES if query != "h_g1"]


def small_key(curve, folder):
    """A .zkey with its witness and constraints: y = x^4, and a private wire that no constraint has."""
    constraints = from_rows(curve, 5, 1, [{2: 1}, {3: 1}], [{2: 1}, {3: 1}], [{3: 1}, {1: 1}])
    path, witness = folder / "small.zkey", folder / "small.wtns"
    zkey.write(path, setup.setup(constraints))
    wtns.write(witness, curve, [1, 7**4, 7, 7**2, 12345])
    return path, witness, constraints


def vector(name):
    folder = VECTORS / name
    return folder / "circuit.zkey", folder / "circuit.wtns", r1cs.read(folder / "circuit.r1cs")


@pytest.mark.parametrize(
    "which",
    [
        *CURVES,
        "edge_pub100",
        "edge_nopub",
        pytest.param("merkle_1k", marks=pytest.mark.slow),
        pytest.param("merkle_1k_bls12381", marks=pytest.mark.slow),
    ],
)
def test_exports(which, tmp_path, call_snarkjs):
    """.zkey to .params by snarkjs, read by us: the same points, proofs that snarkjs takes, and back the same file."""
    path, witness, constraints = small_key(which, tmp_path) if which in CURVES else vector(which)
    exported, ours = tmp_path / "theirs.params", tmp_path / "ours.params"
    call_snarkjs([{"do": "export bellman", "zkey": str(path), "params": str(exported)}])
    original = zkey.read(path)

    head = bellman.read_params_head(exported)
    key = bellman.open_params(exported, constraints, ROOTS_OF_SNARKJS).load()
    assert key.vk.digest() == head.vk.digest() == original.vk.digest()
    for query in OF_WIRES:
        assert np.array_equal(getattr(key.arrays, query), getattr(original.arrays, query)), query

    data = exported.read_bytes()
    trailing = data[len(data) - head.trailing_bytes :]
    bellman.write_params(ours, key, every_wire=True, trailing=trailing)
    assert ours.read_bytes() == data

    back = tmp_path / "back.zkey"
    (answer,) = call_snarkjs(
        [{"do": "import bellman", "zkey": str(path), "params": str(ours), "out": str(back)}]
    )
    assert answer == {"value": True}
    imported = zkey.read(back)  # without the last power of tau: its h is another list, for the same proofs
    for query in OF_WIRES:
        assert np.array_equal(getattr(imported.arrays, query), getattr(original.arrays, query)), query

    vkey = json.loads(snarkjs.vkey_to_json(original.vk))
    cases = []
    for label, k in (("exported", key), ("imported again", imported)):
        proof, publics = prove(k, witness)
        record, values = json.loads(snarkjs.proof_to_json(proof)), [str(x) for x in publics]
        cases.append((label, vkey, record, values, True))
        cases += [(f"{label}, {what}", vkey, p, v, False) for what, p, v in bent(k.vk.curve, record, values)]
    agree(call_snarkjs, cases)


@pytest.mark.parametrize("curve", CURVES)
def test_other_roots_prove_nothing(curve, tmp_path, call_snarkjs):
    """Nothing in the file says which roots of unity it is for; taken for another's, it makes no proof."""
    constraints, values = squares(
        curve, 30
    )  # small domains have few roots, and those of both families are the same
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
