"""The synthetic circuit: witnesses satisfy it, changed ones do not; its shape is a PoRep partition's; sizes are exact.

Rows are checked in plain ints, from the arrays alone.
"""

import itertools
import threading
from collections import defaultdict
from dataclasses import fields

import numpy as np
import pytest

from cuzkd.backend import cpu
from cuzkd.circuits import synthetic, synthetic_tile
from cuzkd.circuits.synthetic import Synthetic
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidInput, UnsatisfiedWitness
from cuzkd.formats import wtns
from cuzkd.groth16 import hosts, prover, setup, verifier

TILE = synthetic_tile.tile("bn254").n_rows
BOUNDARY = 1 + 2 * TILE  # the first row, and two whole tiles
SIZES = [1024, 1025, BOUNDARY - 1, BOUNDARY, BOUNDARY + 1, 20_000]
# One partition of a 32 GiB sector: constraints; entries of A, B, C; variables that occur in A and in B; all of them.
POREP = 130_278_869
POREP_ENTRIES = (309_405_051, 130_327_340, 282_656_500)
POREP_IN_A, POREP_IN_B, POREP_WIRES = 129_753_292, 33_112_281, 130_169_893


def rows_of(matrix, r):
    """[{wire: coefficient}] of a matrix, decoded from twice Montgomery."""
    undo = pow(1 << 256, -2, r)
    values = [v * undo % r for v in limbs.to_ints(matrix.table)]
    entries = list(zip(matrix.cols.tolist(), (values[k] for k in matrix.coeff.tolist()), strict=True))
    ends = matrix.row_ptr.tolist()
    rows = [dict(entries[i:j]) for i, j in itertools.pairwise(ends)]
    assert ends[0] == 0 and ends[-1] == len(entries) == sum(map(len, rows))  # no wire twice in a row
    return rows


class Rows:
    """A, B, C as dictionaries."""

    def __init__(self, made):
        self.r = CURVES[made.curve].r
        self.triples = list(zip(*(rows_of(m, self.r) for m in (made.a, made.b, made.c)), strict=True))

    def broken(self, z, which=None):
        """Rows (of those in `which`) that z breaks."""
        which = range(len(self.triples)) if which is None else which
        sums = ((i, [sum(k * z[w] for w, k in row.items()) for row in self.triples[i]]) for i in which)
        return [i for i, (a, b, c) in sums if (a * b - c) % self.r]


@pytest.mark.parametrize("n", SIZES)
def test_witnesses_satisfy_every_row(curve, n):
    circuit = Synthetic(curve, n)
    made = circuit.constraints()
    assert (made.n_constraints, made.n_public, made.n_wires) == (n, 1, circuit.n_wires)
    rows = Rows(made)
    assert len(rows.triples) == n + 2
    assert rows.triples[n:] == [({0: 1}, {}, {}), ({1: 1}, {}, {})]  # bound as from_rows does it
    for seed in (0, 1):
        z = circuit.witness(seed)
        assert z.shape == (circuit.n_wires, 4) and z.dtype == np.uint64 and z[0].tolist() == [1, 0, 0, 0]
        assert rows.broken(limbs.to_ints(z)) == []
        assert cpu.copy_witness(curve, z.view(np.uint8).reshape(-1), np.empty_like(z)) == -1  # all below r
        a, b, c = (hosts.best().backend.spmv(curve, m, z) for m in (made.a, made.b, made.c))
        assert hosts.best().services.first_mismatch(curve, a, b, c, 0, made.n_rows) == -1


@pytest.mark.parametrize("n", [1024, BOUNDARY + 500])
def test_every_wire_matters(curve, n):
    """A value changed by 2 (a bit is then no bit) breaks a row, whichever wire it is on."""
    circuit = Synthetic(curve, n)
    rows, z = Rows(circuit.constraints()), limbs.to_ints(circuit.witness(7))
    having = defaultdict(set)
    for i, triple in enumerate(rows.triples):
        for row in triple:
            for wire in row:
                having[wire].add(i)
    assert set(having) == set(range(circuit.n_wires))
    for wire in range(circuit.n_wires):
        z[wire] += 2
        assert rows.broken(z, having[wire]), wire
        z[wire] -= 2


def test_first_rows_of_a_tile_use_the_first_wires(curve):
    tile = synthetic_tile.tile(curve)
    rows, seen = Rows(tile.constraints).triples, {0}
    for i in range(tile.n_rows):
        assert seen == set(range(tile.wires_after[i] + 1))
        seen.update(*rows[i])
    assert seen == set(range(tile.n_wires + 1)) and tile.wires_after[-1] == tile.n_wires


def test_words_mix(curve):
    """Absorbed words have 32 bits, differ from sample to sample, and the last shows no trace of the first."""
    tile = synthetic_tile.tile(curve)
    r = CURVES[curve].r
    first, last = (limbs.from_montgomery(word, r) for word in tile.packed)
    for words in (first, last):
        assert len(set(words)) == synthetic_tile.SAMPLES and max(words) < 2**32
    flips = [bin(x ^ y).count("1") for x, y in zip(first, last, strict=True)]
    assert 12 < sum(flips) / len(flips) < 20


@pytest.mark.parametrize("n", [1024, 1 << 14, 20_000, 100_000])
def test_shape_is_what_the_arrays_have(curve, n):
    circuit = Synthetic(curve, n)
    made, z, shape = circuit.constraints(), circuit.witness(3), circuit.shape()
    matrices = (made.a, made.b, made.c)
    entries = [len(m.cols) for m in matrices]
    assert (shape.n_constraints, shape.n_wires) == (n, made.n_wires)
    assert shape.per_row == pytest.approx([e / made.n_rows for e in entries], rel=1e-12)
    assert shape.in_a == pytest.approx(len(np.unique(made.a.cols)) / made.n_wires, rel=1e-12)
    assert shape.in_b == pytest.approx(len(np.unique(made.b.cols)) / made.n_wires, rel=1e-12)
    units = sum(int((m.coeff < 2).sum()) for m in matrices)
    assert shape.units == pytest.approx(units / sum(entries), rel=1e-12)
    used = {tuple(row) for m in matrices for row in m.table[np.unique(m.coeff)].tolist()}
    assert shape.coefficients == len(used)
    is_bit = (z[:, 1:] == 0).all(axis=1) & (z[:, 0] < 2)
    assert shape.bits == pytest.approx(is_bit.mean(), rel=1e-12)
    ones = z[is_bit, 0].mean()
    assert 0.4 < ones < 0.6


@pytest.mark.parametrize("n", [1 << 14, 20_000, 1 << 20, POREP])
def test_shape_is_that_of_a_partition(curve, n):
    """Within a few percent of the published numbers, at every size."""
    shape = Synthetic(curve, n).shape()
    assert shape.n_constraints == n
    assert shape.n_wires / n == pytest.approx(POREP_WIRES / POREP, rel=0.005)
    assert shape.per_row == pytest.approx([e / POREP for e in POREP_ENTRIES], rel=0.02)
    assert shape.per_row == pytest.approx([2.4, 1.0, 2.2], rel=0.03)
    assert shape.in_a == pytest.approx(POREP_IN_A / POREP_WIRES, rel=0.005)
    assert shape.in_b == pytest.approx(POREP_IN_B / POREP_WIRES, rel=0.06)
    assert shape.bits == pytest.approx(0.95, abs=0.01)
    assert shape.units > 0.65 and 100 < shape.coefficients < 200


def test_it_has_dense_rows(curve):
    """An addition of five words has 5 * 32 + 35 terms; there are some in every tile."""
    lengths = np.diff(Synthetic(curve, 20_000).constraints().a.row_ptr.astype(np.int64))
    assert lengths.max() == 195 and (lengths == 195).sum() >= 5 * 19


def test_full_size_fits_the_domain_of_a_partition():
    circuit = Synthetic("bls12_381", POREP)
    assert (circuit.n_constraints + circuit.n_public).bit_length() == 27  # Constraints.log_domain
    assert circuit.n_wires < 1 << 32


def test_field_elements_do_not_repeat(curve):
    """Tiles share bits, never a scalar of full size."""
    z = Synthetic(curve, 100_000).witness(0)[2:]
    large = z[(z[:, 1:] != 0).any(axis=1)]
    assert len(large) > 5000
    assert len(np.unique(large, axis=0)) == len(large)


def test_same_name_same_circuit(curve, monkeypatch):
    """Whoever makes it, with however many threads, however the work is cut."""
    one, other = Synthetic(curve, 20_000, threads=1), Synthetic(curve, 20_000, threads=5)
    digest, z = one.constraints().digest(), one.witness(1)
    monkeypatch.setattr(synthetic, "CHUNK_TILES", 3)
    assert other.constraints().digest() == digest
    assert np.array_equal(other.witness(1), z)
    synthetic_tile.tile.cache_clear()
    assert Synthetic(curve, 20_000).constraints().digest() == digest
    assert Synthetic(curve, 20_001).constraints().digest() != digest
    assert (
        Synthetic({"bn254": "bls12_381", "bls12_381": "bn254"}[curve], 20_000).constraints().digest()
        != digest
    )


def test_a_longer_circuit_begins_as_a_shorter_one(curve):
    short, long = Synthetic(curve, 1500).constraints(), Synthetic(curve, 2500).constraints()
    assert Rows(short).triples[:1500] == Rows(long).triples[:1500]


def test_seeds_differ_in_the_digest_and_in_many_wires(curve):
    circuit = Synthetic(curve, 20_000)
    witnesses = [circuit.witness(seed) for seed in range(4)]
    assert len({tuple(z[1].tolist()) for z in witnesses}) == 4
    for z in witnesses[1:]:
        assert 0.4 < (z != witnesses[0]).any(axis=1).mean() < 0.6  # half of the bits, all field elements


def test_into_a_given_array(curve):
    circuit = Synthetic(curve, 3000)
    backing = np.full((circuit.n_wires + 2, 4), 2**64 - 1, np.uint64)
    given = backing[1:-1]
    assert circuit.witness(5, out=given) is given
    assert np.array_equal(given, circuit.witness(5))
    assert (backing[[0, -1]] == 2**64 - 1).all()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda n: np.empty((n + 1, 4), np.uint64),
        lambda n: np.empty((n, 4), np.int64),
        lambda n: np.empty((n, 8), np.uint64)[:, ::2],
        lambda n: np.empty((4, n), np.uint64).T,
    ],
)
def test_an_array_that_does_not_fit(wrong):
    circuit = Synthetic("bn254", 1024)
    shape = rf"\({circuit.n_wires}, 4\)"
    with pytest.raises(InvalidInput, match=f"out: expected a contiguous uint64 array of shape {shape}, got"):
        circuit.witness(0, out=wrong(circuit.n_wires))


@pytest.mark.parametrize("n", [1024, BOUNDARY, 20_000])
def test_witness_files(curve, n, tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "CHUNK_TILES", 4)
    circuit = Synthetic(curve, n)
    path = tmp_path / "w.wtns"
    circuit.write_witness(path, 9)
    with wtns.map(path) as file:
        file.header.require_fits("synthetic", curve, circuit.n_wires)
        values = np.frombuffer(bytes(file.values), np.uint64).reshape(-1, 4)
    assert np.array_equal(values, circuit.witness(9))
    assert [p.name for p in tmp_path.iterdir()] == ["w.wtns"]
    wtns.write(tmp_path / "plain.wtns", curve, limbs.to_ints(values))
    assert (tmp_path / "plain.wtns").read_bytes() == path.read_bytes()


def test_a_file_that_cannot_be_finished_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "w.wtns").write_bytes(b"older")
    circuit = Synthetic("bn254", 5000)
    solve = synthetic_tile.Tile.solve
    calls = iter(range(100))

    def fails(self, choice, siblings, out):
        if next(calls) == 2:
            raise OSError(28, "No space left on device")
        solve(self, choice, siblings, out)

    monkeypatch.setattr(synthetic, "CHUNK_TILES", 1)
    monkeypatch.setattr(synthetic_tile.Tile, "solve", fails)
    with pytest.raises(OSError, match="No space left"):
        circuit.write_witness(tmp_path / "w.wtns", 0)
    assert [p.name for p in tmp_path.iterdir()] == ["w.wtns"]
    assert (tmp_path / "w.wtns").read_bytes() == b"older"
    with pytest.raises(FileNotFoundError):
        circuit.write_witness(tmp_path / "missing" / "w.wtns", 0)


def test_witnesses_side_by_side(curve):
    """Several threads may make witnesses of one circuit at once."""
    circuit = Synthetic(curve, 20_000)
    expected = [circuit.witness(seed) for seed in range(4)]
    found = [None] * 4

    def make(seed):
        found[seed] = circuit.witness(seed)

    threads = [threading.Thread(target=make, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_the_plain_host_finds_the_same_field_elements(curve, monkeypatch):
    circuit = Synthetic(curve, 1024)
    native = circuit.witness(2)
    monkeypatch.setattr(hosts, "best", hosts.plain)
    assert np.array_equal(circuit.witness(2), native)


def test_whole_proofs(curve):
    circuit = Synthetic(curve, 1024)
    key = setup.setup(circuit.constraints())
    backend = cpu.CpuBackend()
    publics = []
    for seed in (0, 1):
        z = circuit.witness(seed)
        proof = prover.prove(backend, key, z)
        publics.append(limbs.to_ints(z[1:2]))
        assert verifier.verify(key.vk, proof, publics[-1])
    assert not verifier.verify(key.vk, proof, publics[0])
    z[500, 0] ^= 1
    with pytest.raises(UnsatisfiedWitness, match="of 1024 is not satisfied"):
        prover.prove(backend, key, z)


def test_sizes_that_make_no_circuit():
    for curve, two_adicity in (("bn254", 28), ("bls12_381", 32)):
        largest = (1 << (two_adicity - 1)) - 2
        assert (largest + 1).bit_length() < two_adicity  # set-up's own bound, by Constraints.log_domain
        assert (largest + 2).bit_length() == two_adicity
        assert Synthetic(curve, largest).n_wires < 1 << 32
        for n in (-1, 0, 1023, largest + 1):
            with pytest.raises(
                InvalidInput, match=f"n_constraints: expected 1024 to {largest} on {curve}, got {n}"
            ):
                Synthetic(curve, n)
    with pytest.raises(InvalidInput, match="curve: expected one of bn254, bls12_381, got 'p256'"):
        Synthetic("p256", 1024)


def test_the_report_has_every_number():
    shape = Synthetic("bn254", 1024).shape()
    assert all(np.all(getattr(shape, field.name)) for field in fields(shape))
