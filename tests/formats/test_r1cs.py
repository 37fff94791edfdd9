"""Constraint systems: circom's say what keys say, and C with it; one that lies is refused in its own words."""

import struct
import time
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzkd.backend import cpu
from cuzkd.curves import params
from cuzkd.errors import CuzkdError, InvalidInput, InvalidKey, MalformedFile
from cuzkd.formats import coefficients, r1cs, wtns, zkey
from cuzkd.groth16.constraints import from_rows

VECTORS = Path(__file__).parent.parent / "vectors"
SMALL = VECTORS / "edge_nopub" / "circuit.r1cs"
BN, BLS = params.CURVES["bn254"], params.CURVES["bls12_381"]


def pytest_generate_tests(metafunc):
    if "circuit" in metafunc.fixturenames:
        extra = metafunc.config.getoption("--fixtures-dir")
        paths = {
            path.parent.name: path
            for folder in (extra, VECTORS)
            if folder
            for path in folder.rglob("*.r1cs")
            if path.with_suffix(".zkey").exists() and path.with_suffix(".wtns").exists()
        }
        metafunc.parametrize("circuit", paths.values(), ids=paths.keys())


def table_of(matrix, curve):
    """The distinct coefficients of a matrix as plain numbers."""
    undo = pow(1 << 256, -2, params.CURVES[curve].r)
    return [int.from_bytes(row.tobytes(), "little") * undo % params.CURVES[curve].r for row in matrix.table]


def rows_of(matrix, curve):
    """[{wire: coefficient}] as plain numbers; every entry must be there once."""
    table = table_of(matrix, curve)
    rows = []
    for begin, end in pairwise(matrix.row_ptr.tolist()):
        entries = [(matrix.cols[e], table[matrix.coeff[e]]) for e in range(begin, end)]
        rows.append({int(wire): value for wire, value in entries})
        assert len(rows[-1]) == len(entries)
    return rows


def in_order(m):
    """Wires and coefficients with each row's wires ascending."""
    order = np.lexsort((m.cols, np.repeat(np.arange(m.n_rows), np.diff(m.row_ptr).astype(np.int64))))
    return m.cols[order], m.table[m.coeff[order]]


def test_circoms_constraints(circuit):
    """A and B are those of the key beside it; C, which no key has, holds for the witness beside it."""
    system = r1cs.read(circuit)
    head = r1cs.read_header(circuit)
    assert (head.curve, head.n_wires, head.n_public, head.n_constraints) == (
        system.curve,
        system.n_wires,
        system.n_public,
        system.n_constraints,
    )
    for m in (system.a, system.b, system.c):
        assert m.row_ptr.dtype == np.uint64 and m.cols.dtype == m.coeff.dtype == np.uint32
        assert all(x.flags.c_contiguous for x in (m.row_ptr, m.cols, m.coeff, m.table))
        assert table_of(m, system.curve)[:2] == [1, params.CURVES[system.curve].r - 1]
    key = zkey.read(circuit.with_suffix(".zkey")).constraints
    assert (key.n_wires, key.n_public, key.n_rows) == (system.n_wires, system.n_public, system.n_rows)
    for ours, theirs in ((system.a, key.a), (system.b, key.b)):
        assert np.array_equal(ours.row_ptr, theirs.row_ptr)
        wires, values = in_order(theirs)
        assert np.array_equal(ours.cols, wires) and np.array_equal(ours.table[ours.coeff], values)
    with wtns.map(circuit.with_suffix(".wtns")) as witness:
        z = np.frombuffer(bytes(witness.values), "<u8").reshape(-1, 4)
    assert first_broken(system, z) == -1
    z = z.copy()
    z[-1, 0] ^= 1
    assert first_broken(system, z) >= 0


def first_broken(system, z):
    """The first row of a system that a witness breaks, or -1."""
    sums = [np.zeros((system.n_rows, 4), np.uint64) for _ in range(3)]
    for matrix, out in zip((system.a, system.b, system.c), sums, strict=True):
        cpu.spmv_into(system.curve, matrix, z, out, 0, system.n_rows)
    return cpu.first_mismatch(system.curve, *sums, 0, system.n_rows)


def test_written_and_read_again(circuit, tmp_path):
    system = r1cs.read(circuit)
    r1cs.write(tmp_path / "c.r1cs", system)
    assert r1cs.read(tmp_path / "c.r1cs").digest() == system.digest()
    assert (tmp_path / "c.r1cs").stat().st_size == circuit.stat().st_size


# -- by hand -------------------------------------------------------------------------------------------------


def term(wire, value):
    return struct.pack("<I", wire) + value.to_bytes(32, "little")


def combination(*terms):
    return struct.pack("<I", len(terms)) + b"".join(term(*t) for t in terms)


def header(curve=BN, n8=32, wires=6, outputs=1, public=1, private=1, labels=6, constraints=2, prime=None):
    return (
        struct.pack("<I", n8)
        + (prime or curve.r).to_bytes(32, "little")
        + struct.pack("<IIIIQI", wires, outputs, public, private, labels, constraints)
    )


TWO = [
    combination((1, 1), (5, 7)), combination((2, 1)), combination((3, BN.r - 1)),
    combination(), combination((0, 1)), combination((4, 1), (5, 2)),
]  # fmt: skip


def file_of(head=None, rows=None, labels=48, extra=(), order=(1, 2, 3), magic=b"r1cs", version=1):
    sections = {1: header() if head is None else head, 2: b"".join(TWO if rows is None else rows)}
    sections |= {3: bytes(labels)} | dict(extra)
    picked = [i for i in order if i in sections] + [i for i, _ in extra]
    body = b"".join(struct.pack("<IQ", i, len(sections[i])) + sections[i] for i in picked)
    return struct.pack("<4sII", magic, version, len(picked)) + body


def read_bytes(tmp_path, data):
    (tmp_path / "lie.r1cs").write_bytes(data)
    return r1cs.read(tmp_path / "lie.r1cs")


@pytest.mark.parametrize("order", [(1, 2, 3), (2, 1, 3), (3, 2, 1)])
def test_by_hand(order, tmp_path):
    system = read_bytes(tmp_path, file_of(order=order))
    wanted = from_rows("bn254", 6, 2, [{1: 1, 5: 7}, {}], [{2: 1}, {0: 1}], [{3: -1}, {4: 1, 5: 2}])
    for ours, theirs in zip((system.a, system.b, system.c), (wanted.a, wanted.b, wanted.c), strict=True):
        assert rows_of(ours, "bn254") == rows_of(theirs, "bn254")
    assert system.n_constraints == 2 and system.n_public == 2
    assert r1cs.read_header(tmp_path / "lie.r1cs") == r1cs.R1csHeader("bn254", 6, 1, 1, 1, 6, 2)


def test_no_constraints_at_all(tmp_path):
    system = read_bytes(tmp_path, file_of(header(constraints=0), []))
    assert system.n_constraints == 0 and system.n_rows == 3
    r1cs.write(tmp_path / "again", system)
    assert r1cs.read(tmp_path / "again").digest() == system.digest()


@pytest.mark.parametrize("block_bytes", [1, 3, 35, 37, 4096])
@pytest.mark.parametrize("curve", [BN, BLS], ids=["bn254", "bls12_381"])
def test_borders_of_blocks_mean_nothing(block_bytes, curve, tmp_path, monkeypatch):
    rows = [
        combination((5, curve.r - 1), (1, 9), (5, 2)), combination(), combination((0, 0), (3, 1 << 250)),
        combination((2, 1), (3, 1), (4, 1)), combination((0, 1)), combination(),
    ]  # fmt: skip
    data = file_of(header(curve), rows)
    whole = read_bytes(tmp_path, data).digest()
    monkeypatch.setattr(r1cs, "BLOCK_BYTES", block_bytes)
    assert read_bytes(tmp_path, data).digest() == whole
    for change, error, words in (lie[1:] for lie in LIES):
        with pytest.raises(error, match=words):
            read_bytes(tmp_path, file_of(**change))


def test_a_hole_takes_no_memory(tmp_path):
    """A combination of four million terms that are all zero, none of them on the disk."""
    n, path = 1 << 22, tmp_path / "sparse.r1cs"
    size = 4 + 36 * n + 8
    with open(path, "wb") as file:
        file.write(struct.pack("<4sIIIQ", b"r1cs", 1, 3, 1, 64) + header(constraints=1))
        file.write(struct.pack("<IQ", 3, 48) + bytes(48))
        file.write(struct.pack("<IQI", 2, size, n))
        file.truncate(file.tell() + size - 4)
    assert path.stat().st_blocks * 512 < 1 << 16
    tracemalloc.start()
    try:
        system = r1cs.read(path)
        assert tracemalloc.get_traced_memory()[1] < 3 * r1cs.BLOCK_BYTES
    finally:
        tracemalloc.stop()
    assert rows_of(system.a, "bn254") == [{}, {0: 1}, {1: 1}, {2: 1}]


def test_a_file_that_changes_between_the_readings_is_refused(tmp_path, monkeypatch):
    part, calls = r1cs.iden3.Container.part, []

    def other(file, section_id, begin, nbytes):
        calls.append(section_id)
        if calls.count(r1cs.CONSTRAINTS) == 2:  # the same length, another term that is not zero
            return memoryview(combination((1, 1), (5, 7)) + b"".join(TWO[1:]))
        return part(file, section_id, begin, nbytes)

    monkeypatch.setattr(r1cs.iden3.Container, "part", other)
    with pytest.raises(MalformedFile, match="the file changes while it is read"):
        read_bytes(tmp_path, file_of(rows=[combination((1, 1), (5, 0)), *TWO[1:]]))


def test_other_sections_mean_nothing(tmp_path):
    assert read_bytes(tmp_path, file_of(extra=[(77, b"?")])).n_constraints == 2


coefficient_of = {
    "bn254": st.one_of(st.integers(0, 3), st.integers(BN.r - 2, BN.r - 1), st.integers(0, BN.r - 1)),
    "bls12_381": st.one_of(st.integers(0, 3), st.integers(BLS.r - 2, BLS.r - 1), st.integers(0, BLS.r - 1)),
}


@settings(max_examples=150, deadline=None)
@given(curve=st.sampled_from(list(params.CURVES)), data=st.data())
def test_rows_come_out_in_normal_form(curve, data, tmp_path_factory):
    """Wires in any order, several times, with zeros: sums by wire, zeros gone, wires ascending; then both ways."""
    c = params.CURVES[curve]
    terms = st.lists(st.tuples(st.integers(0, 5), coefficient_of[curve]), max_size=9)
    rows = data.draw(st.lists(terms, max_size=12).map(lambda x: x[: len(x) // 3 * 3]))
    path = tmp_path_factory.getbasetemp() / "random.r1cs"
    path.write_bytes(file_of(header(c, constraints=len(rows) // 3), [combination(*row) for row in rows]))
    system = r1cs.read(path)
    for i, matrix in enumerate((system.a, system.b, system.c)):
        wanted = []
        for row in rows[i::3]:
            sums = {}
            for wire, value in row:
                sums[wire] = (sums.get(wire, 0) + value) % c.r
            wanted.append({wire: sums[wire] for wire in sorted(sums) if sums[wire]})
        found = rows_of(matrix, curve)
        assert found[: len(wanted)] == wanted
        assert [list(row) for row in found] == [sorted(row) for row in found]
        assert found[len(wanted) :] == ([{0: 1}, {1: 1}, {2: 1}] if i == 0 else [{}, {}, {}])
        table = table_of(matrix, curve)
        assert len(set(table)) == len(table) and table[:2] == [1, c.r - 1]
    r1cs.write(path, system)
    assert r1cs.read(path).digest() == system.digest()


def test_a_row_of_one_wire_only(tmp_path):
    """x - x is nothing: the wire does not occur."""
    rows = [combination((4, 5), (2, 1), (4, BN.r - 5)), *TWO[1:]]
    system = read_bytes(tmp_path, file_of(rows=rows))
    assert rows_of(system.a, "bn254")[0] == {2: 1}


def test_many_distinct_coefficients(tmp_path):
    """More than any first table of them holds, each found again."""
    n = 5000
    values = [pow(3, i, BN.r) for i in range(n)]
    rows = [combination((1, v), (2, values[(7 * i) % n])) for i, v in enumerate(values) for _ in range(3)]
    system = read_bytes(tmp_path, file_of(header(constraints=n), rows))
    for matrix in (system.a, system.b, system.c):
        found = rows_of(matrix, "bn254")
        assert found[:n] == [{1: v, 2: values[(7 * i) % n]} for i, v in enumerate(values)]


def lying(**changes):
    return {"head": header(**changes)}


LIES = [
    ("magic", {"magic": b"wtns"}, MalformedFile, "expected magic b'r1cs', found b'wtns'"),
    ("version", {"version": 2}, MalformedFile, "expected version 1, found 2"),
    ("no header", {"order": (2, 3)}, MalformedFile, r"section 1 \(header\) is missing"),
    ("no constraints", {"order": (1, 3)}, MalformedFile, r"section 2 \(constraints\) is missing"),
    ("no labels", {"order": (1, 2)}, MalformedFile, r"section 3 \(wire to label\) is missing"),
    ("a section twice", {"order": (1, 2, 2, 3)}, MalformedFile, r"section 2 \(constraints\) occurs twice"),
    ("empty header", {"head": b""}, MalformedFile, r"section 1 \(header\): expected 64 bytes, found 0"),
    ("header cut", {"head": header()[:-1]}, MalformedFile, r"section 1 .*: expected 64 bytes, found 63"),
    ("header too long", {"head": header() + b"x"}, MalformedFile, "expected 64 bytes, found 65"),
    ("n8", lying(n8=8), MalformedFile, r"section 1 .*: expected coefficients of n8 = 32 bytes, found n8 = 8"),
    ("n8 huge", lying(n8=2**32 - 1), MalformedFile, "found n8 = 4294967295"),
    ("prime", lying(prime=BN.r + 2), InvalidKey, f"expected the prime r of .*, found {BN.r + 2}"),
    ("prime q", lying(prime=BN.q), InvalidKey, "expected the prime r of bn254 or bls12_381"),
    ("no wires", lying(wires=0), MalformedFile, r"section 1 .*: expected at least 4 wires .*, found 0"),
    ("wires < named", lying(wires=3), MalformedFile, "expected at least 4 wires"),
    ("outputs huge", lying(outputs=2**32 - 1), MalformedFile, "4294967295 public outputs"),
    ("inputs huge", lying(public=2**32 - 1), MalformedFile, "4294967295 public inputs"),
    ("private huge", lying(private=2**32 - 1), MalformedFile, "4294967295 private inputs"),
    ("wires + 1", lying(wires=7), MalformedFile, r"section 3 .*: expected 56 bytes \(7 labels .*found 48"),
    ("wires huge", lying(wires=2**32 - 1), MalformedFile, "expected 34359738360 bytes"),
    ("labels cut", {"labels": 47}, MalformedFile, r"section 3 .*: expected 48 bytes .*, found 47"),
    (
        "constraints huge",
        lying(constraints=2**27 - 3),
        MalformedFile,
        r"section 2 .*: expected at least 1610612700 bytes \(134217725 constraints by the header\)",
    ),
    (
        "constraints beyond the domain",
        lying(constraints=2**27 - 2),
        MalformedFile,
        r"section 1 .*: expected at most 134217728 rows on bn254, found 134217729 \(134217726 constraints, 2 public",
    ),
    ("constraints 2^32 - 1", lying(constraints=2**32 - 1), MalformedFile, "found 4294967298"),
    (
        "constraints beyond the other curve's",
        lying(curve=BLS, constraints=2**31 - 2),
        MalformedFile,
        "expected at most 2147483648 rows on bls12_381, found 2147483649",
    ),
    (
        "public beyond the domain",
        lying(public=2**27 - 3, wires=2**28),
        MalformedFile,
        "found 134217729 .2 constraints, 134217726 public wires",
    ),
    ("constraints + 1", lying(constraints=3), MalformedFile, "constraint 2, A: expected a count of 4 bytes"),
    ("constraints - 1", lying(constraints=1), MalformedFile, "120 bytes after the last of 1 constraints"),
    ("no constraint", lying(constraints=0), MalformedFile, "276 bytes after the last of 0 constraints"),
    (
        "a count too large",
        {"rows": [*TWO[:5], struct.pack("<I", 3) + TWO[5][4:]]},
        MalformedFile,
        "section 2 .*: constraint 1, C: claims 3 terms of 36 bytes, but the section ends after 72 bytes",
    ),
    (
        "a count huge",
        {"rows": [*TWO[:4], struct.pack("<I", 2**32 - 1) + TWO[4][4:], TWO[5]]},
        MalformedFile,
        "constraint 1, B: claims 4294967295 terms",
    ),
    (
        "a count too small",
        {"rows": [struct.pack("<I", 1) + TWO[0][4:], *TWO[1:]]},
        MalformedFile,
        "constraint 0, ",
    ),
    ("the last byte cut", {"rows": [b"".join(TWO)[:-1]]}, MalformedFile, "constraint 1, C: claims 2 terms"),
    ("bytes too many", {"rows": [*TWO, b"x"]}, MalformedFile, "1 bytes after the last of 2 constraints"),
    (
        "a wire",
        {"rows": [*TWO[:2], combination((3, 1), (6, 1)), *TWO[3:]]},
        MalformedFile,
        "constraint 0, C: term 1: expected a wire below 6, found 6",
    ),
    (
        "a wire huge",
        {"rows": [*TWO[:3], combination((2**32 - 1, 1)), *TWO[4:]]},
        MalformedFile,
        "constraint 1, A: term 0: expected a wire below 6, found 4294967295",
    ),
    (
        "r",
        {"rows": [TWO[0], combination((2, BN.r)), *TWO[2:]]},
        MalformedFile,
        "constraint 0, B: term 0: coefficient is not below r",
    ),
    (
        "2^256 - 1",
        {"rows": [*TWO[:5], combination((4, 1), (5, 2**256 - 1))]},
        MalformedFile,
        "constraint 1, C: term 1: coefficient is not below r",
    ),
    (
        "custom gates",
        {"extra": [(4, bytes(4))]},
        InvalidKey,
        r"section 4 \(custom gates list\): expected none",
    ),
    ("their uses", {"extra": [(5, bytes(4))]}, InvalidKey, r"section 5 \(custom gates application\)"),
]


@pytest.mark.parametrize(("change", "error", "words"), [x[1:] for x in LIES], ids=[x[0] for x in LIES])
def test_lies_are_named(change, error, words, tmp_path):
    tracemalloc.start()
    begun = time.monotonic()
    try:
        with pytest.raises(error, match=words) as caught:
            read_bytes(tmp_path, file_of(**change))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20  # numpy's arrays are counted, too
    finally:
        tracemalloc.stop()
    assert "lie.r1cs" in str(caught.value) and type(caught.value) is error
    assert time.monotonic() - begun < 30  # ends at all


WHOLE = (VECTORS / "edge_pub100" / "circuit.r1cs").read_bytes()


@pytest.mark.parametrize("part", [0, 1, 11, 12, 23, 24, 50, 0.1, 0.5, 0.9, -500, -1])
def test_cut_anywhere(part, tmp_path):
    keep = int(part * len(WHOLE)) if isinstance(part, float) else part % len(WHOLE)
    with pytest.raises(MalformedFile, match=r"cut|empty"):
        read_bytes(tmp_path, WHOLE[:keep])


@settings(max_examples=200, deadline=None)
@given(at=st.integers(0, 12 + 12 + 15372 + 12 + 64 + 11), flip=st.integers(1, 255))
def test_no_changed_byte_is_read_as_the_same(at, flip, tmp_path_factory):
    """Any byte before the labels: refused, or another system (a coefficient may be another valid one)."""
    data = bytearray(WHOLE)
    data[at] ^= flip
    path = tmp_path_factory.getbasetemp() / "flip.r1cs"
    path.write_bytes(data)
    try:
        system = r1cs.read(path)
    except (InvalidInput, InvalidKey):
        return
    good = r1cs.read(VECTORS / "edge_pub100" / "circuit.r1cs")
    heads = [r1cs.read_header(p) for p in (path, VECTORS / "edge_pub100" / "circuit.r1cs")]
    # Private inputs and labels are told of, and nothing else depends on them.
    assert system.digest() != good.digest() or heads[0] != heads[1], at


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=400), keep=st.integers(0, 256))
def test_junk_raises_nothing_else(data, keep, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "junk.r1cs"
    path.write_bytes(SMALL.read_bytes()[:keep] + data)
    try:
        r1cs.read(path)
    except CuzkdError:
        return
    assert keep + len(data) == SMALL.stat().st_size


def test_a_system_without_c_is_not_written(tmp_path):
    system = zkey.read(VECTORS / "edge_nopub" / "circuit.zkey").constraints
    with pytest.raises(
        InvalidKey, match=r"c\.r1cs: an \.r1cs holds A, B and C, and of this system C is not known"
    ):
        r1cs.write(tmp_path / "c.r1cs", system)
    assert not list(tmp_path.iterdir())


def test_units_of_the_key_and_of_the_system_agree():
    assert np.array_equal(r1cs.read(SMALL).a.table[0], coefficients.twice_montgomery("bn254", 1))
