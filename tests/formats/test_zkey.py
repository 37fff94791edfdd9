"""Proving keys: snarkjs's are read whole and written to the letter; one that lies is refused in its own words."""

import dataclasses
import os
import resource
import struct
import time
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from formats.zkeys import (
    DOMAIN,
    ENTRY,
    N8Q,
    N8R,
    N_PUBLIC,
    N_WIRES,
    VECTORS,
    Q,
    R,
    assemble,
    put,
    sections_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzkd.backend.protocol import QUERIES
from cuzkd.curves import params
from cuzkd.errors import CuzkdError, InvalidInput, InvalidKey, MalformedFile
from cuzkd.formats import coefficients, snarkjs, zkey
from cuzkd.groth16.keys import StreamedKey

SHAPES = {  # curve, wires, public, constraints, log_domain
    "edge_nopub": ("bn254", 3, 0, 1, 1),
    "edge_pub100": ("bn254", 201, 101, 99, 8),
    "merkle_1k": ("bn254", 3023, 3, 3016, 12),
    "merkle_1k_bls12381": ("bls12_381", 3023, 3, 3016, 12),
}
ALL = list(SHAPES)
SMALL = VECTORS / "edge_pub100" / "circuit.zkey"


@pytest.mark.parametrize("name", ALL)
def test_real_keys(name):
    key = zkey.read(VECTORS / name / "circuit.zkey")
    curve, n_wires, n_public, n_constraints, log_domain = SHAPES[name]
    arrays, lq = key.arrays, 4 if curve == "bn254" else 6
    assert (arrays.curve, arrays.n_wires, arrays.n_public, arrays.log_domain) == (
        curve,
        n_wires,
        n_public,
        log_domain,
    )
    assert (arrays.root_family, arrays.reduction) == (5, "circom")
    assert key.constraints.c is None and key.constraints.n_constraints == n_constraints
    assert (
        arrays.n_rows == key.constraints.a.n_rows == key.constraints.b.n_rows == n_constraints + n_public + 1
    )
    assert arrays.a_g1.shape == arrays.b_g1.shape == (n_wires, 2, lq)
    assert arrays.b_g2.shape == (n_wires, 2, 2, lq)
    assert arrays.l_g1.shape == (n_wires - n_public - 1, 2, lq)
    assert arrays.h_g1.shape == (2**log_domain, 2, lq)
    for array in (arrays.a_g1, arrays.b_g1, arrays.b_g2, arrays.l_g1, arrays.h_g1, key.vk.ic):
        assert array.dtype == np.uint64 and array.flags.c_contiguous and array.flags.aligned
    wanted = snarkjs.read_vkey(VECTORS / name / "vkey.json")
    assert all(np.array_equal(getattr(key.vk, f), getattr(wanted, f)) for f in FIELDS)


FIELDS = ("alpha_g1", "beta_g2", "gamma_g2", "delta_g2", "ic")


@pytest.mark.parametrize("name", ALL)
def test_written_again_to_the_letter(name, tmp_path):
    path = VECTORS / name / "circuit.zkey"
    zkey.write(tmp_path / "k.zkey", zkey.read(path))
    before, after = sections_of(path), sections_of(tmp_path / "k.zkey")
    assert list(after) == list(range(1, 11))
    assert {i for i in before if before[i] != after[i]} == {10}  # contributions are not kept
    assert after[10] == bytes(64 + 4)


def test_order_of_sections_and_extra_ones_mean_nothing(tmp_path):
    sections = sections_of(SMALL)
    fresh = {i: sections[i] for i in (1, 2, 4, 3, 9, 8, 5, 6, 7)} | {77: b"?"}  # and section 10 is not for us
    (tmp_path / "k").write_bytes(assemble(fresh))
    zkey.write(tmp_path / "a", zkey.read(tmp_path / "k"))
    zkey.write(tmp_path / "b", zkey.read(SMALL))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def pieces(section):
    return lambda begin, nbytes: memoryview(section)[begin : begin + nbytes], len(section)


def test_rows_of_real_coefficients():
    """Against a reading entry by entry: the same sums for a witness, also when entries come in any order."""
    section = bytes(sections_of(SMALL)[4])
    r = params.CURVES["bn254"].r
    undo = pow(1 << 256, -2, r)
    z = [pow(3, i, r) for i in range(201)]
    wanted = {0: [0] * 201, 1: [0] * 201}
    entries = [section[i : i + ENTRY] for i in range(4, len(section), ENTRY)]
    for entry in entries:
        matrix, row, wire = struct.unpack_from("<III", entry)
        wanted[matrix][row] += int.from_bytes(entry[12:], "little") * undo * z[wire]
    shuffled = section[:4] + b"".join(
        np.random.default_rng(1).permutation(np.array(entries, dtype="V44")).tolist()
    )
    for data in (section, shuffled):
        for index, m in enumerate(coefficients.read(*pieces(data), "x", "bn254", 201, 101, 256)):
            assert m.row_ptr.dtype == np.uint64 and m.cols.dtype == m.coeff.dtype == np.uint32
            values = [int.from_bytes(row.tobytes(), "little") * undo % r for row in m.table]
            assert values[:2] == [1, r - 1] and len(set(values)) == len(values)
            ends = m.row_ptr.tolist()
            got = [
                sum(values[m.coeff[e]] * z[m.cols[e]] for e in range(begin, end)) % r
                for begin, end in pairwise(ends)
            ]
            assert got == [value % r for value in wanted[index]]


def change(section, at, fmt, value):
    return lambda s: put(s[section], at, fmt, value)


def entry(index, field, value):
    """Change the matrix (0), row (1) or wire (2) of an entry of section 4."""
    return change(4, 4 + ENTRY * index + 4 * field, "<I", value)


def coefficient(index, value):
    def apply(s):
        s[4][4 + ENTRY * index + 12 : 4 + ENTRY * (index + 1)] = value.to_bytes(32, "little")

    return apply


def cut(section, nbytes):
    def apply(s):
        del s[section][-nbytes:]

    return apply


def number(section, at, value, nbytes=32):
    def apply(s):
        s[section][at : at + nbytes] = value.to_bytes(nbytes, "little")

    return apply


BN, BLS = params.CURVES["bn254"], params.CURVES["bls12_381"]
LIES = [
    (
        "protocol",
        change(1, 0, "<I", 2),
        InvalidKey,
        r"section 1 \(protocol\): expected 1 \(Groth16\), found 2",
    ),
    ("protocol size", cut(1, 1), MalformedFile, r"section 1 \(protocol\): expected 4 bytes, found 3"),
    ("n8q", change(2, N8Q, "<I", 31), MalformedFile, r"section 2 .*: expected n8q = 32 or 48, found 31"),
    ("n8q of the other curve", change(2, N8Q, "<I", 48), MalformedFile, "expected n8r = 32"),
    ("n8q huge", change(2, N8Q, "<I", 2**32 - 1), MalformedFile, "found 4294967295"),
    ("n8r", change(2, N8R, "<I", 48), MalformedFile, "expected n8r = 32, found 48"),
    (
        "q",
        number(2, Q, BN.q + 2),
        InvalidKey,
        f"expected the prime q of bn254 or bls12_381, found {BN.q + 2}",
    ),
    (
        "r",
        number(2, R, BN.r - 2),
        InvalidKey,
        f"expected the prime r of bn254, whose q it names, found {BN.r - 2}",
    ),
    ("r of the other", number(2, R, BLS.r), InvalidKey, "expected the prime r of bn254"),
    ("header cut", cut(2, 4), MalformedFile, r"section 2 .*: expected 660 bytes \(on bn254\), found 656"),
    (
        "wires + 1",
        change(2, N_WIRES, "<I", 202),
        MalformedFile,
        r"section 5 \(A points\): expected 12928 bytes",
    ),
    (
        "wires - 1",
        change(2, N_WIRES, "<I", 200),
        MalformedFile,
        r"section 5 \(A points\): expected 12800 bytes",
    ),
    (
        "wires huge",
        change(2, N_WIRES, "<I", 2**32 - 1),
        MalformedFile,
        r"section 5 .* expected 274877906880 bytes",
    ),
    ("no wires", change(2, N_WIRES, "<I", 0), MalformedFile, "expected n_public . 1 <= n_wires"),
    ("public + 1", change(2, N_PUBLIC, "<I", 102), MalformedFile, r"section 3 \(IC\): expected 6592 bytes"),
    (
        "public huge",
        change(2, N_PUBLIC, "<I", 2**32 - 1),
        MalformedFile,
        "n_public = 4294967295, n_wires = 201",
    ),
    ("domain 3000", change(2, DOMAIN, "<I", 3000), MalformedFile, "a power of two, found 3000"),
    ("domain 0", change(2, DOMAIN, "<I", 0), MalformedFile, "a power of two, found 0"),
    (
        "domain doubled",
        change(2, DOMAIN, "<I", 512),
        MalformedFile,
        r"section 9 .* \(512 points by the header\)",
    ),
    ("domain halved", change(2, DOMAIN, "<I", 128), MalformedFile, r"section 9 .* expected 8192 bytes"),
    ("domain huge", change(2, DOMAIN, "<I", 2**31), InvalidKey, r"at most 2\^27 on bn254, found 2147483648"),
    *[
        (
            f"section {i} missing",
            lambda s, i=i: s.pop(i),
            MalformedFile,
            rf"section {i} \({name}\) is missing",
        )
        for i, name in zkey.NAMES.items()
        if i != 10
    ],
    *[
        (
            f"section {i} short",
            cut(i, 64),
            MalformedFile,
            rf"section {i} \({zkey.NAMES[i]}\): expected .* found ",
        )
        for i in (3, 5, 6, 7, 8, 9)
    ],
    (
        "entries short",
        cut(4, 44),
        MalformedFile,
        r"section 4 \(coefficients\): expected 17472 bytes \(397 entries\)",
    ),
    ("entries odd", cut(4, 1), MalformedFile, "found 17471"),
    ("count huge", change(4, 0, "<I", 2**32 - 1), MalformedFile, r"\(4294967295 entries\), found 17472"),
    ("no count", lambda s: s.update({4: b""}), MalformedFile, "expected a count of 4 bytes"),
    ("no entries", lambda s: s.update({4: bytes(4)}), InvalidKey, "no coefficients"),
    ("matrix 2", entry(7, 0, 2), MalformedFile, "entry 7: expected a matrix index below 2, found 2"),
    ("row = domain", entry(3, 1, 256), MalformedFile, "entry 3: expected a row index below 256, found 256"),
    ("row huge", entry(3, 1, 2**32 - 1), MalformedFile, "entry 3: expected a row index below 256"),
    ("wire = wires", entry(0, 2, 201), MalformedFile, "entry 0: expected a wire index below 201, found 201"),
    ("wire huge", entry(0, 2, 2**32 - 1), MalformedFile, "entry 0: expected a wire index below 201"),
    ("value r", coefficient(5, BN.r), MalformedFile, "entry 5: coefficient is not below r"),
    ("value 2^256 - 1", coefficient(396, 2**256 - 1), MalformedFile, "entry 396: coefficient is not below r"),
    ("a row beyond", entry(396, 1, 201), InvalidKey, "the last 102 rows do not bind"),
    ("a public row doubled", entry(396, 1, 199), InvalidKey, "do not bind"),
    ("a public wire unbound", entry(396, 2, 5), InvalidKey, "do not bind"),
    ("a public row in B", entry(396, 0, 1), InvalidKey, "do not bind"),
    ("a public row times 2", coefficient(396, 2), InvalidKey, "do not bind"),
]


@pytest.mark.parametrize(("lie", "error", "words"), [x[1:] for x in LIES], ids=[x[0] for x in LIES])
def test_lies_are_named(lie, error, words, tmp_path):
    sections = sections_of(SMALL)
    lie(sections)
    path = tmp_path / "lie.zkey"
    path.write_bytes(assemble(sections))
    begun, peak = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(error, match=words) as caught:
        zkey.read(path)
    assert "lie.zkey" in str(caught.value) and type(caught.value) is error
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 10 << 10  # KiB
    assert time.monotonic() - begun < 30  # ends at all: elsewhere some of these hang


def test_too_few_rows_for_the_public_wires(tmp_path):
    section = (
        struct.pack("<III", 1, 0, 0)
        + struct.pack("<I", 0)
        + coefficients.twice_montgomery("bn254", 1).tobytes()
    )
    with pytest.raises(InvalidKey, match=r"expected at least 2 rows \(1 public values\), found 1"):
        coefficients.read(*pieces(section), "x", "bn254", 2, 1, 2)


@pytest.mark.parametrize("part", [0, 1, 50, 0.1, 0.5, 0.9, -500, -1])
def test_cut_anywhere(part, tmp_path):
    whole = SMALL.read_bytes()
    keep = int(part * len(whole)) if isinstance(part, float) else part % len(whole)
    (tmp_path / "cut.zkey").write_bytes(whole[:keep])
    with pytest.raises(MalformedFile, match=r"cut|empty"):
        zkey.read(tmp_path / "cut.zkey")


def test_magic_and_version(tmp_path):
    whole = bytearray(SMALL.read_bytes())
    whole[4] = 3
    (tmp_path / "k").write_bytes(whole)
    with pytest.raises(MalformedFile, match="expected version 1, found 3"):
        zkey.read(tmp_path / "k")
    whole[:4] = b"zzzz"
    (tmp_path / "k").write_bytes(whole)
    with pytest.raises(MalformedFile, match="expected magic b'zkey', found b'zzzz'"):
        zkey.read(tmp_path / "k")


SMALL_BYTES = SMALL.read_bytes()
# Where numbers that a reader acts on lie: the table of sections, section 1, the counts of section 2, section 4.
HEADS, _at = [*range(12)], 12
while _at < len(SMALL_BYTES):
    _id, _size = struct.unpack_from("<IQ", SMALL_BYTES, _at)
    HEADS += range(_at, _at + 12)
    HEADS += {
        1: range(_at + 12, _at + 16),
        2: range(_at + 12, _at + 12 + 84),
        4: range(_at + 12, _at + 60),
    }.get(_id, ())
    _at += 12 + _size
LAST_ID = _at - _size - 12  # section 10's id: that it is another section is nothing to us


@settings(max_examples=150, deadline=None)
@given(at=st.sampled_from(HEADS), flip=st.integers(1, 255))
def test_no_changed_head_is_accepted_silently(at, flip, tmp_path_factory):
    """One byte of any number that the reader acts on: refused as one of our errors, or the same key is read."""
    data = bytearray(SMALL_BYTES)
    data[at] ^= flip
    path = tmp_path_factory.getbasetemp() / "flip.zkey"
    path.write_bytes(data)
    try:
        key = zkey.read(path)
    except (InvalidInput, InvalidKey):
        return
    good = zkey.read(SMALL)
    a, b = (
        list(coefficients.write(key.constraints.a, key.constraints.b)),
        list(coefficients.write(good.constraints.a, good.constraints.b)),
    )
    # A changed coefficient may be a valid one of another circuit, and is read as such, never dropped.
    assert LAST_ID <= at < LAST_ID + 4 or a != b, at


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=400), keep=st.integers(0, 700))
def test_junk_raises_nothing_else(data, keep, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "junk.zkey"
    path.write_bytes(SMALL_BYTES[:keep] + data)
    with pytest.raises(CuzkdError):
        zkey.read(path)


# -- keys that come in blocks --------------------------------------------------------------------------------


def same(key, other):
    return key.digest() == other.digest()


@pytest.mark.parametrize("name", ALL)
def test_a_key_in_blocks(name, tmp_path, monkeypatch):
    """Blocks of a few points each: together the key, any number of times, and written without ever being whole."""
    path = VECTORS / name / "circuit.zkey"
    whole = zkey.read(path)
    monkeypatch.setattr(zkey, "BLOCK_BYTES", 7 * 192 + 5)
    monkeypatch.setattr(coefficients, "ENTRIES_AT_ONCE", 13)
    monkeypatch.setattr(coefficients, "_ROWS_AT_ONCE", 11)
    key = zkey.open(path)
    assert isinstance(key, StreamedKey)
    for query in QUERIES:
        blocks = list(key.blocks(query))
        assert all(1 <= len(block) <= 21 for block in blocks)
        assert all(block.dtype == np.uint64 and block.flags.aligned for block in blocks)
        assert sum(map(len, blocks)) == len(getattr(whole.arrays, query))
    assert same(key.load(), whole) and same(key.load(), whole)
    zkey.write(tmp_path / "a", key)
    zkey.write(tmp_path / "b", whole)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert same(zkey.read(tmp_path / "a"), whole)


def copy_of(name, tmp_path):
    path = tmp_path / "k.zkey"
    path.write_bytes((VECTORS / name / "circuit.zkey").read_bytes())
    return path


def test_what_is_replaced_or_deleted_is_read_on(tmp_path):
    path = copy_of("merkle_1k", tmp_path)
    whole, key = zkey.read(path), zkey.open(path)
    other = tmp_path / "other"
    other.write_bytes((VECTORS / "merkle_1k_bls12381" / "circuit.zkey").read_bytes())
    os.replace(other, path)
    assert same(key.load(), whole)
    path.unlink()
    assert same(key.load(), whole)


@pytest.mark.parametrize("keep", [0, 1, 100_000, 700_000, 1_300_000])
def test_what_is_shortened_is_refused(keep, tmp_path):
    """A map of it would have ended the process."""
    path = copy_of("merkle_1k", tmp_path)
    key = zkey.open(path)
    os.truncate(path, keep)
    with pytest.raises(
        MalformedFile, match=r"k\.zkey: file is cut: it had 1357928 bytes .* while being read"
    ):
        key.load()


def test_coefficients_that_change_between_two_readings():
    """The second reading is believed no more than the first."""
    section = bytearray(sections_of(SMALL)[4])
    n_blocks = 0

    def part(begin, nbytes):
        nonlocal n_blocks
        n_blocks += nbytes > 4
        if n_blocks == 2:
            struct.pack_into("<I", section, 4 + 4, 5)  # entry 0 is in another row now
        return memoryview(bytes(section))[begin : begin + nbytes]

    with pytest.raises(MalformedFile, match="x: the file changes while it is read"):
        coefficients.read(part, len(section), "x", "bn254", 201, 101, 256)


def test_a_file_is_closed_with_its_key():
    before = len(os.listdir("/proc/self/fd"))
    key = zkey.open(VECTORS / "merkle_1k" / "circuit.zkey")
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del key
    assert len(os.listdir("/proc/self/fd")) == before


def test_opening_reads_no_points():
    tracemalloc.start()
    key = zkey.open(VECTORS / "merkle_1k" / "circuit.zkey")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert key.arrays.n_wires == 3023 and peak < 700_000  # section 4 alone has 270 kB, the points 1 MB


def test_blocks_that_are_not_what_they_claim(tmp_path):
    key = zkey.open(SMALL)
    short = dataclasses.replace(
        key, queries=dict(key.queries) | {"l_g1": lambda: iter([np.zeros((3, 2, 4), np.uint64)])}
    )
    with pytest.raises(InvalidKey, match="l_g1: expected 99 points, its blocks hold 3"):
        zkey.write(tmp_path / "k", short)
    assert not list(tmp_path.iterdir())


def test_other_keys_are_not_written(tmp_path):
    key = zkey.read(SMALL)
    for change in ({"reduction": "bellman"}, {"root_family": 7}):
        other = dataclasses.replace(key, arrays=dataclasses.replace(key.arrays, **change))
        with pytest.raises(
            InvalidKey, match=r"a \.zkey holds keys of the circom reduction on root family 5, not"
        ):
            zkey.write(tmp_path / "k", other)
    assert not list(tmp_path.iterdir())
