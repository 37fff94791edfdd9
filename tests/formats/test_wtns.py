"""Witness files: circom's are read, and each way to be wrong has its own words."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzkd.curves import params
from cuzkd.errors import InvalidWitness, MalformedFile
from cuzkd.formats import iden3, wtns

VECTORS = Path(__file__).parent.parent / "vectors"
R = params.CURVES["bn254"].r


def written(path, n8=32, prime=R, n=3, values=None, version=2):
    head = struct.pack("<I", n8) + prime.to_bytes(n8, "little") + struct.pack("<I", n)
    body = b"".join(v.to_bytes(32, "little") for v in (1, 2, 3)) if values is None else values
    iden3.write_container(path, b"wtns", version, [(1, [head]), (2, [body])])
    return path


@pytest.mark.parametrize(
    ("name", "curve", "n"),
    [("edge_nopub", "bn254", 3), ("merkle_1k", "bn254", 3023), ("merkle_1k_bls12381", "bls12_381", 3023)],
)
def test_circoms_witnesses(name, curve, n, tmp_path):
    path = VECTORS / name / "circuit.wtns"
    assert wtns.read_header(path) == wtns.WitnessHeader(path, curve, n)
    with wtns.map(path) as witness:
        assert len(witness.values) == 32 * n and witness.values.readonly
        values = [int.from_bytes(witness.values[i : i + 32], "little") for i in range(0, 32 * n, 32)]
    assert values[0] == 1
    wtns.write(tmp_path / "copy.wtns", curve, values)
    assert (tmp_path / "copy.wtns").read_bytes() == path.read_bytes()


def test_mapping_ends_with_the_file_object(tmp_path):
    wtns.write(tmp_path / "w", "bn254", [1] * 3000)  # too large to be read instead
    witness = wtns.map(tmp_path / "w")
    array = np.frombuffer(witness.values, dtype="<u8")
    with pytest.raises(BufferError):
        witness.close()
    assert array[0] == 1
    del array
    witness.close()


@pytest.mark.parametrize("n_wires", [1, 2044, 2045, 2046, 2047, 2048])
def test_sizes_about_that_of_a_small_file(tmp_path, n_wires):
    values = [1, *range(n_wires - 1)]
    wtns.write(tmp_path / "w", "bls12_381", values)
    with wtns.map(tmp_path / "w") as witness:
        found = np.frombuffer(bytes(witness.values), dtype="<u8").reshape(-1, 4)
    assert found[:, 0].tolist() == values and not found[:, 1:].any()


def test_fit_to_a_circuit():
    header = wtns.read_header(VECTORS / "edge_nopub" / "circuit.wtns")
    header.require_fits("c", "bn254", 3)
    with pytest.raises(InvalidWitness, match=r"expected 3023 values \(circuit merkle\), found 3"):
        header.require_fits("merkle", "bn254", 3023)
    with pytest.raises(InvalidWitness, match=r"over bls12_381 \(circuit merkle\), found one over bn254"):
        header.require_fits("merkle", "bls12_381", 3)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"version": 1}, MalformedFile, "expected version 2, found 1"),
        ({"n8": 48}, MalformedFile, r"section 1 \(header\): expected values of n8 = 32 bytes, found n8 = 48"),
        (
            {"prime": R + 2},
            InvalidWitness,
            "expected the prime r of bn254 or bls12_381, found another number",
        ),
        ({"n": 0}, MalformedFile, "found 0 values"),
        (
            {"n": 4},
            MalformedFile,
            r"section 2 \(values\): expected 128 bytes \(4 values of 32 bytes .*\), found 96",
        ),
        ({"n": 2}, MalformedFile, "expected 64 bytes"),
        ({"n": 2**32 - 1}, MalformedFile, "expected 137438953440 bytes"),
        ({"values": b""}, MalformedFile, "expected 96 bytes .* found 0"),
    ],
)
def test_lies_are_named(tmp_path, change, error, words):
    path = written(tmp_path / "lie.wtns", **change)
    with pytest.raises(error, match=words) as caught:
        wtns.read_header(path)
    assert "lie.wtns" in str(caught.value)


@pytest.mark.parametrize("size", [0, 1, 11, 12, 23, 24, 63, 64, 75, 76, 171])
def test_cut_anywhere(tmp_path, size):
    whole = written(tmp_path / "w").read_bytes()
    assert len(whole) == 172
    (tmp_path / "cut").write_bytes(whole[:size])
    with pytest.raises(MalformedFile, match="cut"):
        wtns.read_header(tmp_path / "cut")


WHOLE = (VECTORS / "edge_nopub" / "circuit.wtns").read_bytes()


@settings(max_examples=100, deadline=None)
@given(at=st.integers(0, 12 + 12 + 40 + 12 - 1), flip=st.integers(1, 255))
def test_no_changed_head_is_accepted(at, flip, tmp_path_factory):
    """One byte of frame or header, up to the first value: each of them means something."""
    data = bytearray(WHOLE)
    data[at] ^= flip
    path = tmp_path_factory.getbasetemp() / "flip.wtns"
    path.write_bytes(data)
    with pytest.raises((MalformedFile, InvalidWitness)):
        wtns.read_header(path)


@settings(max_examples=60, deadline=None)
@given(keep=st.integers(0, 172), junk=st.binary(min_size=1, max_size=100))
def test_junk_raises_nothing_else(keep, junk, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "junk.wtns"
    path.write_bytes(WHOLE[:keep] + junk)
    try:
        header = wtns.read_header(path)
    except (MalformedFile, InvalidWitness):
        return
    assert keep + len(junk) == len(WHOLE) and header.n_wires == 3


def test_writer_refuses_what_is_no_field_element(tmp_path):
    for bad in (R, -1, 2**256):
        with pytest.raises(InvalidWitness, match="wire 1: value is not in"):
            wtns.write(tmp_path / "w", "bn254", [1, bad])
    assert not list(tmp_path.iterdir())
