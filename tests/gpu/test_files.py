"""Real keys and witnesses: with the same r and s the device's proof is the processor's, byte for byte."""

from pathlib import Path

import numpy as np
import pytest

from cuzkd.backend import cpu
from cuzkd.backend.cpu import CpuBackend
from cuzkd.formats import proof_bytes, wtns, zkey
from cuzkd.groth16 import prover

pytestmark = pytest.mark.gpu

VECTORS = Path(__file__).parent.parent / "vectors"


def pairs(config):
    """Every .zkey below tests/vectors and --fixtures-dir with its witness beside it."""
    extra = config.getoption("--fixtures-dir")
    found = [path for folder in (VECTORS, extra) if folder for path in Path(folder).rglob("*.zkey")]
    return sorted(path for path in found if path.with_suffix(".wtns").exists())


def pytest_generate_tests(metafunc):
    keys = pairs(metafunc.config)
    metafunc.parametrize("path", keys, ids=[f"{p.parent.name}/{p.stem}" for p in keys])


def test_the_same_proof_as_the_processors(gpu, path):
    key = zkey.read(path)
    with wtns.map(path.with_suffix(".wtns")) as file:
        witness = np.empty((file.header.n_wires, 4), np.uint64)
        assert cpu.copy_witness(key.arrays.curve, file.values, witness) == -1
    blinding = (12345, 67890)
    proofs = [prover.prove(backend, key, witness, blinding) for backend in (gpu, CpuBackend())]
    assert proof_bytes.encode(proofs[0]) == proof_bytes.encode(proofs[1])
