"""Faults that are known and not yet mended: each of these tests fails, and says so when it does not any more."""

import json

import pytest
from hostile.state_targets import state

from cuzkd.backend import cpu
from cuzkd.circuits import builtin
from cuzkd.circuits.manifest import content_digest
from cuzkd.errors import InvalidKey
from cuzkd.groth16 import hosts, prover


@pytest.mark.xfail(strict=True, reason="a ValueError from below is not turned into an InvalidKey")
@pytest.mark.parametrize("lie", ["root_family", "cols"])
def test_a_manifest_that_agrees_with_itself(lie):
    """A root family that is none, and fewer columns than coefficients: the digests fit."""
    honest = state("bn254")
    record = json.loads(honest.manifest)
    if lie == "root_family":
        record["root_family"] = 4
    else:
        (cols,) = (s for s in record["sections"] if s["name"] == "b.cols")
        cols["shape"] = [cols["shape"][0] - 1]
    record["digest"] = content_digest(record)
    with pytest.raises(InvalidKey):
        circuit = honest.opened(json.dumps(record).encode(), honest.key)
        prover.prove(cpu.CpuBackend(), circuit.key, hosts.scalars(builtin.witness("bn254", 1, 4711)))
