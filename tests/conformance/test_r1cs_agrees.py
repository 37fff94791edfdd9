"""Constraint systems that we write, read by snarkjs: the same numbers, and the same witness satisfies them."""

from pathlib import Path

import pytest

from cuzkd.curves import params
from cuzkd.formats import r1cs
from cuzkd.groth16.constraints import from_rows

pytestmark = pytest.mark.conformance
VECTORS = Path(__file__).parent.parent / "vectors"


@pytest.mark.parametrize("curve", list(params.CURVES))
def test_what_snarkjs_reads(curve, tmp_path, call_snarkjs):
    r = params.CURVES[curve].r
    rows = [[{1: 1, 4: -1}, {2: 3}], [{3: 1}, {}], [{0: 5, 4: 1 << 200}, {4: 7}]]
    path = tmp_path / "c.r1cs"
    r1cs.write(path, from_rows(curve, 5, 2, *rows))
    (answer,) = call_snarkjs([{"do": "r1cs", "r1cs": str(path)}])
    found = answer["value"]
    assert int(found["prime"]) == r
    names = ("nVars", "nOutputs", "nPubInputs", "nPrvInputs", "nLabels", "nConstraints")
    assert [found[name] for name in names] == [5, 0, 2, 0, 5, 2]
    assert found["map"] == list(range(5))
    for i, constraint in enumerate(found["constraints"]):
        for matrix, combination in enumerate(constraint):
            wanted = {str(wire): str(value % r) for wire, value in rows[matrix][i].items()}
            assert combination == wanted


@pytest.mark.parametrize("name", ["edge_nopub", "edge_pub100", "merkle_1k", "merkle_1k_bls12381"])
def test_a_witness_still_satisfies_what_is_written_again(name, tmp_path, call_snarkjs):
    path = tmp_path / "c.r1cs"
    r1cs.write(path, r1cs.read(VECTORS / name / "circuit.r1cs"))
    other = VECTORS / ("merkle_1k" if name.startswith("edge") else "edge_nopub") / "circuit.wtns"
    calls = [
        {"do": "check", "r1cs": str(path), "wtns": str(wtns)}
        for wtns in (VECTORS / name / "circuit.wtns", other)
    ]
    good, bad = call_snarkjs(calls)
    assert good == {"value": True} and bad.get("value", False) is False
