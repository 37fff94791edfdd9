"""Witnesses that other provers accept or turn into invalid proofs: each has its own error, and the next one proves."""

import struct
from pathlib import Path

import numpy as np
import pytest

from cuzkd.backend import cpu
from cuzkd.curves import params
from cuzkd.errors import InvalidWitness, MalformedFile, UnsatisfiedWitness
from cuzkd.formats import wtns, zkey
from cuzkd.groth16 import prover

VECTORS = Path(__file__).parent.parent / "vectors"
HEAD = 12 + 12 + 40 + 12  # bytes before the first value
R = params.CURVES["bn254"].r


@pytest.fixture(scope="module")
def key():
    return zkey.read(VECTORS / "edge_pub100" / "circuit.zkey")


def prove(key, path):
    """As synthesis does it: header, fit, then the values."""
    with wtns.map(path) as witness:
        witness.header.require_fits("pub100", key.arrays.curve, key.arrays.n_wires)
        z = np.frombuffer(bytes(witness.values), dtype="<u8").reshape(-1, 4)
    return prover.prove(cpu.CpuBackend(), key, z)


def value(data, wire):
    return int.from_bytes(data[HEAD + 32 * wire : HEAD + 32 * (wire + 1)], "little")


def put(data, wire, number):
    data[HEAD + 32 * wire : HEAD + 32 * (wire + 1)] = number.to_bytes(32, "little")


def plus_one(wire):
    return lambda data: put(data, wire, (value(data, wire) + 1) % R)


def plus_r(wire):
    return lambda data: put(data, wire, value(data, wire) + R)


def set_to(wire, number):
    return lambda data: put(data, wire, number)


def shorten(data):
    """One value less, and a header that says so."""
    del data[-32:]
    struct.pack_into("<I", data, 12 + 12 + 36, 200)
    struct.pack_into("<Q", data, 12 + 12 + 40 + 4, 200 * 32)


def cut(n):
    def apply(data):
        del data[-n:]

    return apply


def other_curve(data):
    data[28:60] = params.CURVES["bls12_381"].r.to_bytes(32, "little")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (plus_one(150), UnsatisfiedWitness, "does not verify: the witness breaks a constraint"),
        (plus_one(1), UnsatisfiedWitness, "does not verify"),
        (set_to(0, 2), InvalidWitness, "value 0, the constant wire, is not 1"),
        (set_to(0, 0), InvalidWitness, "the constant wire, is not 1"),
        (plus_r(150), InvalidWitness, "value 150 is not below r of bn254"),
        (plus_r(1), InvalidWitness, "value 1 is not below r of bn254"),
        (set_to(200, R), InvalidWitness, "value 200 is not below r"),
        (set_to(7, 2**256 - 1), InvalidWitness, "value 7 is not below r"),
        (shorten, InvalidWitness, r"expected 201 values \(circuit pub100\), found 200"),
        (
            other_curve,
            InvalidWitness,
            r"expected a witness over bn254 \(circuit pub100\), found one over bls12_381",
        ),
        (cut(100), MalformedFile, r"section 2 \(values\) claims 6432 bytes"),
        (lambda data: data.clear(), MalformedFile, "file is empty"),
    ],
)
def test_each_has_its_own_error_and_the_next_one_proves(key, change, error, words, tmp_path):
    data = bytearray((VECTORS / "edge_pub100" / "circuit.wtns").read_bytes())
    before = bytes(data)
    change(data)
    path = tmp_path / "w.wtns"
    path.write_bytes(data)
    with pytest.raises(error, match=words) as caught:
        prove(key, path)
    assert type(caught.value) is error
    for wire in (1, 150, 200):  # no witness value in an error
        assert str(value(before, wire)) not in str(caught.value)
    path.write_bytes(before)
    prove(key, path)


def test_anothers_witness(key):
    with pytest.raises(InvalidWitness, match=r"expected 201 values .* found 3"):
        prove(key, VECTORS / "edge_nopub" / "circuit.wtns")
