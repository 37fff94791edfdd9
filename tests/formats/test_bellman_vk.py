"""The .vk file, uncompressed and compressed: read as plain ints say it is, and each lie in it named."""

import struct
from pathlib import Path

import numpy as np
import pytest
from formats import bellman_files, plain_points
from formats.bellman_files import COUNTS, GROUPS, SINGLE
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzkd.backend import readers
from cuzkd.curves import points
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidKey, MalformedFile
from cuzkd.formats import bellman, bellman_vk, compressed, proof_bytes, snarkjs
from cuzkd.groth16 import verifier

POLKA = Path(__file__).parent.parent / "vectors" / "polka_porep_2kib"
IN_A_VK = [name for name in GROUPS if name in SINGLE or name == "ic"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "key.vk"


def write(path, data):
    path.write_bytes(data)
    return path


def key_of(curve, path):
    return bellman.open_params(
        write(path.with_name("made.params"), bellman_files.params(curve).bytes()),
        bellman_files.constraints(curve),
    )


def compress(made):
    """The file that polka-storage would write."""
    encode = {"g1": compressed.encode_g1, "g2": compressed.encode_g2}
    pieces = [encode[group](made.single[name]) for name, group in SINGLE.items()]
    ic = [compressed.encode_g1(point) for point in made.lists["ic"]]
    return b"".join([*pieces, struct.pack(">I", len(ic)), *ic])


def offset(name, i=0):
    """Of a point in the compressed file."""
    at = 0
    for single, group in SINGLE.items():
        if single == name:
            return at
        at += 48 if group == "g1" else 96
    return at + 4 + 48 * i


@pytest.mark.parametrize("curve", CURVES)
def test_native_points_are_the_plain_ones(curve):
    """The decoder and encoder under all of this, against plain ints."""
    for group in ("g1", "g2"):
        some = [*bellman_files.multiples(curve, group)[:9], None]
        raw = b"".join(plain_points.encode(curve, group, point) for point in some)
        expected = points.group(curve, group).encode(some)
        out = np.empty_like(expected)
        assert readers.decode_points(curve, group, raw, out) is None
        assert np.array_equal(out, expected)
        assert np.array_equal(plain_points.decode_all(curve, group, raw), expected)
        assert readers.encode_points(curve, group, expected) == raw


@pytest.mark.parametrize("curve", CURVES)
def test_both_ways(curve, path):
    made = bellman_files.params(curve)
    key = key_of(curve, path)
    bellman_vk.write_vk(path, key)
    assert path.read_bytes() == made.vk_bytes()
    for given_curve in (None, curve):
        assert bellman_vk.read_vk(path, given_curve).digest() == key.vk.digest()


def test_compressed(path):
    key = key_of("bls12_381", path)
    write(path, compress(bellman_files.params("bls12_381")))
    for given_curve in (None, "bls12_381"):
        assert bellman_vk.read_vk(path, given_curve).digest() == key.vk.digest()
    with pytest.raises(MalformedFile, match="alpha_g1: flag 0x80 is set"):
        bellman_vk.read_vk(path, "bn254")


def test_a_real_key_of_filecoin():
    """polka-storage's: the proof of a 2 KiB sector verifies, and not with another statement."""
    vk = bellman_vk.read_vk(POLKA / "porep.vk")
    proof = proof_bytes.decode(vk.curve, (POLKA / "proof.bin").read_bytes())
    publics = snarkjs.read_publics(POLKA / "public.json", vk.curve)
    assert (vk.curve, vk.n_public) == ("bls12_381", 39)
    assert verifier.verify(vk, proof, publics)
    assert not verifier.verify(vk, proof, [publics[0] + 1, *publics[1:]])


@pytest.mark.parametrize("curve", CURVES)
def test_lengths(curve, path):
    made = bellman_files.params(curve)
    whole, small = [made.vk_bytes()], bellman_files.params(curve)
    if curve == "bls12_381":
        whole.append(compress(made))
    for data in whole:
        for n in range(1, len(data), 11):
            with pytest.raises(MalformedFile, match="file is cut"):
                bellman_vk.read_vk(write(path, data[:n]), curve)
        with pytest.raises(
            MalformedFile, match=rf"expected {len(data)} bytes \(3 points in ic\), found {len(data) + 1}"
        ):
            bellman_vk.read_vk(write(path, data + b"\0"))
        at = data.index(struct.pack(">I", 3), len(data) // 3)
        for claimed, words in (
            (2**32 - 1, f"ic: the count at byte {at} claims 4294967295 points"),
            (4, f"ic: the count at byte {at} claims 4 points"),
            (2, r"\(2 points in ic\)"),
            (0, "ic: expected at least the point of the constant wire"),
        ):
            lying = data[:at] + struct.pack(">I", claimed) + data[at + 4 :]
            with pytest.raises(MalformedFile, match=words):
                bellman_vk.read_vk(write(path, lying))
    small.lists["ic"] = small.lists["ic"][:1]
    assert bellman_vk.read_vk(write(path, small.vk_bytes())).n_public == 0


@pytest.mark.parametrize("name", IN_A_VK)
def test_compressed_points_that_are_none(name, path):
    data = compress(bellman_files.params("bls12_381"))
    at, size = offset(name, 1), 96 if GROUPS[name] == "g2" else 48
    q = (1 << 383) + CURVES["bls12_381"].q
    lies = [
        (at, bytes([data[at] | 0x40]), "point at infinity with other bits set"),
        (at, bytes([0xC0]) + bytes(size - 1), "is the point at infinity, which has no place here"),
        (at, q.to_bytes(48, "big"), "a coordinate is not below q"),
    ]
    if name != "alpha_g1":  # there, the flag tells that the file is compressed
        lies.append((at, bytes([data[at] & 0x7F]), "the flag of a compressed point is missing"))
    no_x = next(x for x in range(1, 100) if not is_x(x, GROUPS[name]))
    lies.append((at, (no_x | 1 << (8 * size - 1)).to_bytes(size, "big"), "has this x"))
    for where, what, words in lies:
        lying = data[:where] + what + data[where + len(what) :]
        which = f"ic: point 1 of {COUNTS['ic']}" if name == "ic" else name
        with pytest.raises(MalformedFile, match=f"{which}: .*{words}"):
            bellman_vk.read_vk(write(path, lying))


def is_x(x, group):
    """Is x (Fq2: x + 0 u) the coordinate of a point?"""
    size = 48 if group == "g1" else 96
    raw = (x | 1 << (8 * size - 1)).to_bytes(size, "big")
    try:
        compressed.decode_g1(raw) if group == "g1" else compressed.decode_g2(raw)
    except compressed.BadPoint:
        return False
    return True


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_changed_bytes_raise_nothing_else(data, tmp_path_factory):
    made = bellman_files.params("bls12_381")
    raw = bytearray(data.draw(st.sampled_from([made.vk_bytes(), compress(made)])))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    path = write(tmp_path_factory.getbasetemp() / "changed.vk", bytes(raw))
    try:
        bellman_vk.read_vk(path)
    except MalformedFile as error:
        assert str(path) in str(error)


@pytest.mark.parametrize("curve", CURVES)
def test_what_the_format_cannot_hold(curve, path):
    key = key_of(curve, path)
    for name, points_of in (("beta_g2", key.vk.beta_g2), ("delta_g1", key.delta_g1), ("ic", key.vk.ic[1:2])):
        was = points_of.copy()
        points_of[:] = 0
        with pytest.raises(InvalidKey, match=f"{name}.* is the point at infinity"):
            bellman_vk.write_vk(path, key)
        points_of[:] = was
    assert not path.exists()
