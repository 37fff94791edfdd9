"""Every circuit at an edge is proved, on both curves, with both reductions, by keys in memory, of files, of a registry.

Nothing is refused for being small or empty, not even a circuit without constraints: a proof verifies with our verifier
and with another's. One thing has no place: a private wire that no constraint has, in bellman's files.
"""

import json

import numpy as np
import pytest
from edges import independent
from edges.circuits import EDGES, squarings

from cuzkd.backend import cpu, reference
from cuzkd.circuits.registry import Registry
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidKey, UnsatisfiedWitness
from cuzkd.formats import bellman, r1cs, snarkjs, wtns, zkey
from cuzkd.groth16 import prover, setup, verifier

REDUCTIONS = ("circom", "bellman")
PLAIN_DOMAIN = 4  # up to here the reference backend proves, too: it takes 20 ms for each point
# Of these py_ecc verifies the proofs over BN254, which takes it two seconds; arkworks verifies all over BLS12-381.
BY_PY_ECC = {
    "no public wire",
    "no private wire",
    "only linear constraints",
    "no constraint",
    "all values zero",
}
ROWS = sorted({2**k + d for k in (1, 2, 3, 4, 5, 10) for d in (-1, 0, 1)} - {1})

each_way = pytest.mark.parametrize(("curve", "reduction"), [(c, r) for c in CURVES for r in REDUCTIONS])
each_edge = pytest.mark.parametrize("edge", EDGES)


def proved(key, statement, backend=None):
    """A proof that our verifier takes, and that shows nothing else."""
    proof = prover.prove(backend or cpu.CpuBackend(), key, statement.z)
    assert verifier.verify(key.vk, proof, statement.publics)
    if statement.publics:
        assert not verifier.verify(key.vk, proof, [*statement.publics[:-1], (statement.publics[-1] + 1)])
    return proof


@each_edge
@each_way
def test_each_is_proved(edge, curve, reduction):
    statement = EDGES[edge](curve)
    key = setup.setup(statement.constraints, reduction=reduction)
    proof = proved(key, statement)
    if key.arrays.domain <= PLAIN_DOMAIN:
        blinding = (12345, 67890)
        proofs = [
            prover.prove(b, key, statement.z, blinding)
            for b in (cpu.CpuBackend(), reference.ReferenceBackend())
        ]
        for name in "abc":
            assert np.array_equal(*(getattr(p, name) for p in proofs)), name
    if curve == "bls12_381" or edge in BY_PY_ECC:
        assert independent.holds(key.vk, proof, statement.publics)


@each_edge
@each_way
def test_each_goes_through_a_registry(edge, curve, reduction, tmp_path):
    statement = EDGES[edge](curve)
    key = setup.setup(statement.constraints, reduction=reduction)
    circuits = Registry(tmp_path)
    manifest = circuits.install("edge", key, source="edge")
    assert manifest.n_constraints == statement.constraints.n_constraints
    opened = circuits.open("edge").key
    assert opened.digest() == key.digest()
    proved(opened, statement)


@each_edge
@pytest.mark.parametrize("curve", CURVES)
def test_each_goes_through_circoms_files(edge, curve, tmp_path):
    """.zkey and .r1cs, read again into the same key, and added to a registry with the verification key."""
    statement = EDGES[edge](curve)
    key = setup.setup(statement.constraints)
    zkey.write(tmp_path / "edge.zkey", key)
    r1cs.write(tmp_path / "edge.r1cs", statement.constraints)
    (tmp_path / "vkey.json").write_text(snarkjs.vkey_to_json(key.vk))
    again = r1cs.read(tmp_path / "edge.r1cs")
    assert (
        again.n_constraints == statement.constraints.n_constraints
        and again.n_public == statement.constraints.n_public
    )
    proved(zkey.read(tmp_path / "edge.zkey"), statement)
    files = {"zkey": tmp_path / "edge.zkey", "vkey": tmp_path / "vkey.json"}
    circuits = Registry(tmp_path / "state")
    assert circuits.add("derived", **files).constraint_check == "derived"
    assert circuits.add("checked", **files, r1cs=tmp_path / "edge.r1cs").constraint_check == "checked"
    for name in ("derived", "checked"):
        proved(circuits.open(name).key, statement)


def lonely(statement):
    """Private wires that no constraint has: their point in l would be infinity."""
    c = statement.constraints
    used = {int(wire) for matrix in (c.a, c.b, c.c) for wire in matrix.cols}
    return set(range(c.n_public + 1, c.n_wires)) - used


@each_edge
@pytest.mark.parametrize("curve", CURVES)
def test_each_goes_through_bellmans_files(edge, curve, tmp_path):
    statement = EDGES[edge](curve)
    key = setup.setup(statement.constraints, reduction="bellman")
    if lonely(statement):
        with pytest.raises(InvalidKey, match=r"edge\.params: l: .*infinity"):
            bellman.write_params(tmp_path / "edge.params", key)
        assert not list(tmp_path.iterdir())
        return
    bellman.write_params(tmp_path / "edge.params", key)
    r1cs.write(tmp_path / "edge.r1cs", statement.constraints)
    opened = bellman.open_params(tmp_path / "edge.params", statement.constraints).load()
    assert opened.digest() == key.digest()
    circuits = Registry(tmp_path / "state")
    circuits.add("edge", params=tmp_path / "edge.params", r1cs=tmp_path / "edge.r1cs")
    proved(circuits.open("edge").key, statement)


@pytest.mark.parametrize("n_rows", ROWS)
@each_way
def test_about_each_power_of_two(n_rows, curve, reduction):
    """n_rows: the constraints, and the two that bind the constant and a public wire. One row: see EDGES."""
    statement = squarings(curve, n_rows - 2)
    assert statement.constraints.n_rows == n_rows
    key = setup.setup(statement.constraints, reduction=reduction)
    assert key.arrays.domain == max(2, 1 << (n_rows - 1).bit_length())
    proof = proved(key, statement)
    if curve == "bls12_381":
        assert independent.holds(key.vk, proof, statement.publics)
    wrong = statement.z.copy()
    wrong[1, 0] ^= np.uint64(1)
    if n_rows > 2:
        with pytest.raises(
            UnsatisfiedWitness, match=f"constraint {n_rows - 3} of {n_rows - 2} is not satisfied"
        ):
            prover.prove(cpu.CpuBackend(), key, wrong)


@pytest.mark.parametrize("n_public", [0, 1, 2, 3, 4, 5])
@each_way
def test_public_wires_count_among_the_rows(n_public, curve, reduction):
    """Three constraints, and as many rows that bind as make 4 to 9 of them."""
    statement = squarings(curve, 3, n_public)
    key = setup.setup(statement.constraints, reduction=reduction)
    assert statement.constraints.n_rows == 4 + n_public
    assert key.arrays.domain == (4 if n_public == 0 else 8 if n_public < 5 else 16)
    proved(key, statement)


@pytest.mark.conformance
@pytest.mark.parametrize("curve", CURVES)
def test_snarkjs_agrees(curve, call_snarkjs, tmp_path):
    """It verifies our proofs, and from our .zkey of the same circuits it makes its own, which we verify."""
    calls, labels = [], []
    for edge, make in EDGES.items():
        statement = make(curve)
        key = setup.setup(statement.constraints)
        name = edge.replace(" ", "-").replace(",", "").replace("=", "is")
        zkey.write(tmp_path / f"{name}.zkey", key)
        wtns.write(tmp_path / f"{name}.wtns", curve, statement.witness)
        vkey = json.loads(snarkjs.vkey_to_json(key.vk))
        proof = json.loads(snarkjs.proof_to_json(proved(key, statement)))
        publics = [str(x) for x in statement.publics]
        calls.append({"do": "verify", "vkey": vkey, "proof": proof, "publics": publics})
        labels.append((edge, key.vk, statement))
        calls.append(
            {"do": "prove", "zkey": str(tmp_path / f"{name}.zkey"), "wtns": str(tmp_path / f"{name}.wtns")}
        )
    answers = call_snarkjs(calls)
    for (edge, vk, statement), verified, theirs in zip(labels, answers[::2], answers[1::2], strict=True):
        assert verified.get("value") is True, f"{edge}: {verified}"
        assert "value" in theirs, f"{edge}: {theirs}"
        proof = snarkjs.proof_from_json(json.dumps(theirs["value"]["proof"]), edge, curve)
        assert verifier.verify(vk, proof, statement.publics), edge
