"""Development keys made on the device: the host's key to the byte, and proofs that verify."""

import random
from dataclasses import replace

import numpy as np
import pytest

from cuzkd import errors
from cuzkd.backend.protocol import QUERIES, REDUCTIONS
from cuzkd.circuits import builtin
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES
from cuzkd.groth16 import constraints, device_setup, hosts, prover, setup, verifier


def random_constraints(curve, n_rows, n_wires, n_public, seed):
    """Rows of 0 to 40 entries, a third of them on wires 0 and 1; coefficients from 0 to r - 1; three wires idle."""
    rng, r = random.Random(seed), CURVES[curve].r

    def row():
        wires = [
            rng.choice([0, 1, *rng.choices(range(n_wires - 3), k=4)])
            for _ in range(rng.choice([0, 1, 2, 3, 40]))
        ]
        return {wire: rng.choice([0, 1, 1, -1, 2, r - 2, r - 1, rng.randrange(r)]) for wire in wires}

    a, b, c = ([row() for _ in range(n_rows)] for _ in range(3))
    return constraints.from_rows(curve, n_wires, n_public, a, b, c)


def assert_equals_the_hosts_key(gpu, made, reduction="circom"):
    secrets = setup.Secrets.random(made.curve)
    expected = setup.setup(made, secrets, reduction=reduction)
    head, loaded = device_setup.develop_key(gpu, made, secrets, reduction=reduction)
    try:
        key = device_setup.fetch(head, loaded)
        fetched = key.load()
        for name in QUERIES:
            assert np.array_equal(getattr(fetched.arrays, name), getattr(expected.arrays, name)), name
        assert fetched.digest() == expected.digest()
        assert loaded.resident_bytes == sum(points.nbytes for points in loaded.bases.values())
    finally:
        loaded.close()
    with pytest.raises(errors.Unavailable, match="closed"):
        next(key.blocks("h_g1"))
    assert head.vk.digest() == expected.vk.digest()
    assert np.array_equal(head.beta_g1, expected.beta_g1)
    assert np.array_equal(head.delta_g1, expected.delta_g1)
    assert setup.DEVELOPMENT in head.label and "INSECURE" in head.label


@pytest.mark.gpu
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("n_rounds", [40, 1500])
def test_the_chain(gpu, curve, n_rounds, reduction):
    assert_equals_the_hosts_key(gpu, builtin.constraints(curve, n_rounds), reduction)


@pytest.mark.gpu
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_shortest_chain(gpu, curve, reduction):
    assert_equals_the_hosts_key(gpu, builtin.constraints(curve, 1), reduction)


@pytest.mark.gpu
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_no_constraints_at_all(gpu, curve, reduction):
    assert_equals_the_hosts_key(gpu, constraints.from_rows(curve, 2, 0, [], [], []), reduction)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1, 4, 0), (3, 4, 3), (10, 30, 25), (3000, 900, 2)], ids=str)
def test_any_constraints(gpu, curve, shape):
    """Empty rows, hot columns, wires that nobody uses, and no private wire at all."""
    assert_equals_the_hosts_key(gpu, random_constraints(curve, *shape, seed=1))


@pytest.mark.gpu
def test_matrices_and_points_in_pieces(gpu, curve, monkeypatch):
    from cuzkd.backend import cuda_setup

    monkeypatch.setattr(cuda_setup, "CHUNK_ENTRIES", 997)
    monkeypatch.setattr(device_setup, "BLOCK_POINTS", 100)
    assert_equals_the_hosts_key(gpu, random_constraints(curve, 700, 300, 3, seed=2))


@pytest.mark.gpu
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_proof_verifies(gpu, curve, reduction):
    made, z = builtin.constraints(curve, 300), hosts.scalars(builtin.witness(curve, 300, 7))
    head, loaded = device_setup.develop_key(gpu, made, reduction=reduction)
    backend = hosts.best().backend
    try:
        a, b = (backend.spmv(curve, matrix, z) for matrix in (made.a, made.b))
        sums = gpu.launch(gpu.upload(loaded, a, b, None, z)).result()
    finally:
        loaded.close()
    proof = prover.assemble(head, sums, 5, 6)
    publics = limbs.to_ints(z[1 : made.n_public + 1])
    assert verifier.verify(head.vk, proof, publics)
    assert not verifier.verify(head.vk, proof, [publics[0] ^ 1])


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["zkey", "params"])
def test_the_command(gpu, curve, kind, tmp_path, capsys):
    """A key made on the device, written as a file, proves."""
    from cuzkd import cli
    from cuzkd.formats import bellman, r1cs, zkey

    source, out = tmp_path / "chain.r1cs", tmp_path / f"chain.{kind}"
    r1cs.write(source, builtin.constraints(curve, 5))
    assert cli.main(["setup", "--r1cs", str(source), f"--{kind}", str(out), "--backend", "cuda"]) == 0
    assert "INSECURE" in capsys.readouterr().err
    key = zkey.read(out) if kind == "zkey" else bellman.open_params(out, r1cs.read(source)).load()
    prover.prove(gpu, key, hosts.scalars(builtin.witness(curve, 5, 7)))  # raises unless it verifies


@pytest.mark.gpu
def test_memory_comes_back(gpu, curve):
    made, held = builtin.constraints(curve, 100), []
    for _ in range(3):
        _, loaded = device_setup.develop_key(gpu, made)
        held.append(gpu.memory().pool_bytes)
        loaded.close()
    assert held[1] == held[2]


@pytest.mark.gpu
def test_wrong_indices_are_refused(gpu, curve):
    made = random_constraints(curve, 40, 10, 1, seed=3)

    def changed(name, at, value):
        array = getattr(made.b, name).copy()
        array[at] = value
        return replace(made, b=replace(made.b, **{name: array}))

    for bad in (
        changed("cols", -1, 10),
        changed("coeff", -1, len(made.b.table)),
        changed("row_ptr", 0, 1),
        changed("row_ptr", 20, 2**63),
        changed("row_ptr", -1, len(made.b.cols) + 1),
    ):
        with pytest.raises(errors.InvalidKey, match=r"out of bounds|do not fit"):
            device_setup.develop_key(gpu, bad)
    with pytest.raises(errors.InvalidInput, match="matrix C"):
        device_setup.develop_key(gpu, replace(made, c=None))


# -- what needs CuPy, but no device --


@pytest.fixture
def cuda_setup():
    return pytest.importorskip("cuzkd.backend.cuda_setup", exc_type=ImportError)


def test_rows_of_a_piece(cuda_setup):
    row_ptr = np.array([0, 0, 2, 2, 2, 7, 8, 8], np.uint64)
    rows = np.repeat(np.arange(7), np.diff(row_ptr).astype(int))
    for begin in range(8):
        for end in range(begin + 1, 9):
            first, last = cuda_setup.rows_of(row_ptr, begin, end)
            assert (first, last) == (rows[begin], rows[end - 1] + 1)


def test_scalars_of_a_table(cuda_setup):
    for bits in (8, 16):
        got = limbs.to_ints(cuda_setup.window_scalars(bits)[:: 251 if bits == 16 else 1])
        every = [d << (bits * i) for i in range(256 // bits) for d in range(1 << bits)]
        assert got == every[:: 251 if bits == 16 else 1]
