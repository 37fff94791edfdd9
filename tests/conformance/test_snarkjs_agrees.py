"""Our proofs convince snarkjs, snarkjs's convince us, and a changed one convinces neither.

Real keys come from tests/vectors and `--fixtures-dir`; keys of our own set-up go the other way, through a .zkey.
"""

import json

import numpy as np
import pytest

from cuzkd.backend import cpu
from cuzkd.circuits import builtin
from cuzkd.curves import params
from cuzkd.errors import InvalidInput
from cuzkd.formats import proof_bytes, snarkjs, wtns, zkey
from cuzkd.groth16 import prover, setup, verifier
from cuzkd.groth16.constraints import from_rows

pytestmark = pytest.mark.conformance


def ints(witness, n):
    return [int.from_bytes(witness.values[i : i + 32], "little") for i in range(32, 32 * (n + 1), 32)]


def prove(key, path):
    """(proof, public values) of a witness file, made by the CPU backend through the library's way."""
    with wtns.map(path) as witness:
        witness.header.require_fits(str(path), key.arrays.curve, key.arrays.n_wires)
        z = np.frombuffer(bytes(witness.values), dtype="<u8").reshape(-1, 4)
        return prover.prove(cpu.CpuBackend(), key, z), ints(witness, key.arrays.n_public)


def verify_call(vkey, proof, publics):
    return {"do": "verify", "vkey": vkey, "proof": proof, "publics": publics}


def ours_accepts(vkey, proof, publics):
    """Our verifier's answer for JSON; what it refuses to read, it does not accept."""
    vk = snarkjs.vkey_from_json(json.dumps(vkey), "vkey")
    try:
        read = snarkjs.proof_from_json(json.dumps(proof), "proof", vk.curve)
        return verifier.verify(vk, read, snarkjs.publics_from_json(json.dumps(publics), "publics", vk.curve))
    except InvalidInput:
        return False


def bent(curve, proof, publics):
    """The same proof with one thing changed at a time: coordinates (on and off the curve), signs, points, publics."""
    c = params.CURVES[curve]

    def with_(**changes):
        return json.loads(json.dumps(proof)) | changes, publics

    def plus_one(number, modulus):
        return str((int(number) + 1) % modulus)

    def minus(number):
        return str(-int(number) % c.q)

    a, b, third = proof["pi_a"], proof["pi_b"], proof["pi_c"]
    yield "A.x + 1", *with_(pi_a=[plus_one(a[0], c.q), a[1], "1"])
    yield "-A", *with_(pi_a=[a[0], minus(a[1]), "1"])
    yield "A = C", *with_(pi_a=third)
    yield "B.y.c1 + 1", *with_(pi_b=[b[0], [b[1][0], plus_one(b[1][1], c.q)], b[2]])
    yield "-B", *with_(pi_b=[b[0], [minus(n) for n in b[1]], b[2]])
    yield "C.y + 1", *with_(pi_c=[third[0], plus_one(third[1], c.q), "1"])
    yield "C = G", *with_(pi_c=[str(c.g1[0]), str(c.g1[1]), "1"])
    for i in sorted({0, len(publics) // 2, len(publics) - 1} if publics else ()):
        changed = [plus_one(value, c.r) if i == k else value for k, value in enumerate(publics)]
        yield f"public {i} + 1", proof, changed
    if publics:
        yield "public 0 + r", proof, [str(int(publics[0]) + c.r), *publics[1:]]


def agree(call_snarkjs, cases):
    """cases: (label, vkey, proof, publics, expected). Both verifiers must say what is expected."""
    answers = call_snarkjs([verify_call(vkey, proof, publics) for _, vkey, proof, publics, _ in cases])
    for (label, vkey, proof, publics, expected), answer in zip(cases, answers, strict=True):
        # snarkjs throws for some proofs (points off the curve, on one of the curves): not accepted, either.
        assert answer.get("value", False) is expected, f"snarkjs: {label}: {answer}"
        assert ours_accepts(vkey, proof, publics) is expected, f"cuzkd: {label}"


def test_real_keys(real_key, call_snarkjs):
    """For a real key: our proof, snarkjs's own proof, and each of them bent."""
    key = zkey.read(real_key)
    curve = key.arrays.curve
    vkey = json.loads(snarkjs.vkey_to_json(key.vk))
    proof, publics = prove(key, real_key.with_suffix(".wtns"))
    proofs = {"ours": (json.loads(snarkjs.proof_to_json(proof)), [str(x) for x in publics])}

    (answer,) = call_snarkjs(
        [{"do": "prove", "zkey": str(real_key), "wtns": str(real_key.with_suffix(".wtns"))}]
    )
    theirs = answer["value"]
    assert theirs["publicSignals"] == proofs["ours"][1]
    proofs["snarkjs's"] = (theirs["proof"], theirs["publicSignals"])
    if (beside := real_key.with_name("proof.json")).exists():
        publics_beside = json.loads(real_key.with_name("public.json").read_text())
        proofs["the shipped one"] = (json.loads(beside.read_text()), publics_beside)

    cases = []
    for who, (made, values) in proofs.items():
        cases.append((who, vkey, made, values, True))
        cases += [(f"{who}, {what}", vkey, p, v, False) for what, p, v in bent(curve, made, values)]
    agree(call_snarkjs, cases)


def test_changed_bytes_of_a_proof(real_key):
    """The wire's bytes: whole they verify, with any one byte changed they do not."""
    key = zkey.read(real_key)
    proof, publics = prove(key, real_key.with_suffix(".wtns"))
    data = proof_bytes.encode(proof)
    assert verifier.verify(key.vk, proof_bytes.decode(key.arrays.curve, data), publics)
    for at in range(0, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        try:
            accepted = verifier.verify(key.vk, proof_bytes.decode(key.arrays.curve, bytes(changed)), publics)
        except InvalidInput:
            continue
        assert not accepted, at


def test_verification_keys(call_snarkjs):
    """snarkjs's export of a key is ours to the letter, the pairing it holds included."""
    from conformance.conftest import VECTORS

    paths = sorted(VECTORS.rglob("*.zkey"))
    answers = call_snarkjs([{"do": "vkey", "zkey": str(path)} for path in paths])
    for path, answer in zip(paths, answers, strict=True):
        assert json.loads(snarkjs.vkey_to_json(zkey.read(path).vk, with_pairing=True)) == answer["value"], (
            path
        )


@pytest.mark.parametrize("curve", list(params.CURVES))
def test_keys_of_our_own_set_up(curve, tmp_path, call_snarkjs):
    """A key made here and written as .zkey: snarkjs proves and verifies with it, and so do we after reading it."""
    n_rounds = 4
    made = setup.setup(builtin.constraints(curve, n_rounds))
    path, witness = tmp_path / "chain.zkey", tmp_path / "chain.wtns"
    zkey.write(path, made)
    wtns.write(witness, curve, builtin.witness(curve, n_rounds, 12345))
    digest = str(builtin.digest(curve, n_rounds, 12345))

    proved, exported = call_snarkjs(
        [{"do": "prove", "zkey": str(path), "wtns": str(witness)}, {"do": "vkey", "zkey": str(path)}]
    )
    theirs, vkey = proved["value"], exported["value"]
    assert theirs["publicSignals"] == [digest]
    assert vkey == json.loads(snarkjs.vkey_to_json(made.vk, with_pairing=True))

    cases = [("snarkjs's", vkey, theirs["proof"], [digest], True)]
    for label, key in (("from memory", made), ("from the file", zkey.read(path))):
        proof, _ = prove(key, witness)
        record = json.loads(snarkjs.proof_to_json(proof))
        cases.append((label, vkey, record, [digest], True))
        cases += [(f"{label}, {what}", vkey, p, v, False) for what, p, v in bent(curve, record, [digest])]
    agree(call_snarkjs, cases)


def squares(curve, n):
    """y = x^(2^n), y public: n constraints over n + 2 wires, and a witness of it."""
    r = params.CURVES[curve].r
    chain = [2, *range(3, n + 2), 1]  # the wires of x, x^2, ..., y
    rows = [{wire: 1} for wire in chain]
    made = from_rows(curve, n + 2, 1, rows[:-1], rows[:-1], rows[1:])
    values = {wire: pow(7, 2**i, r) for i, wire in enumerate(chain)} | {0: 1}
    return made, [values[wire] for wire in range(n + 2)]


@pytest.mark.parametrize("curve", list(params.CURVES))
def test_sizes_about_a_power_of_two(curve, tmp_path, call_snarkjs):
    """Domains that are just full, and just not: n + 2 rows. The smallest circuit of all is among them."""
    calls, cases = [], []
    for n in (1, 2, 3, 5, 6, 7, 14, 15):
        made, values = squares(curve, n)
        path, witness = tmp_path / f"{n}.zkey", tmp_path / f"{n}.wtns"
        zkey.write(path, setup.setup(made))
        wtns.write(witness, curve, values)
        key = zkey.read(path)
        vkey, publics = json.loads(snarkjs.vkey_to_json(key.vk)), [str(values[1])]
        proof, _ = prove(key, witness)
        cases.append((f"{n}, ours", vkey, json.loads(snarkjs.proof_to_json(proof)), publics, True))
        calls.append({"do": "prove", "zkey": str(path), "wtns": str(witness)})
    for answer, (label, vkey, _, publics, _) in zip(call_snarkjs(calls), list(cases), strict=True):
        cases.append((f"{label} by snarkjs", vkey, answer["value"]["proof"], publics, True))
    agree(call_snarkjs, cases)


@pytest.mark.parametrize("curve", list(params.CURVES))
def test_no_private_wire(curve, tmp_path, call_snarkjs):
    """c = a b with all of them public: section 8 is empty."""
    path, witness = tmp_path / "k.zkey", tmp_path / "w.wtns"
    zkey.write(path, setup.setup(from_rows(curve, 4, 3, [{2: 1}], [{3: 1}], [{1: 1}])))
    wtns.write(witness, curve, [1, 391, 17, 23])
    key = zkey.read(path)
    assert len(key.arrays.l_g1) == 0
    proof, publics = prove(key, witness)
    record = json.loads(snarkjs.proof_to_json(proof))
    vkey, values = json.loads(snarkjs.vkey_to_json(key.vk)), [str(x) for x in publics]
    cases = [("whole", vkey, record, values, True)]
    agree(call_snarkjs, cases + [(what, vkey, p, v, False) for what, p, v in bent(curve, record, values)])
