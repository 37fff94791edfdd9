"""The built-in circuit: its witnesses satisfy it, others do not, and its digest is what a plain loop says."""

import pytest

from cuzkd.circuits import builtin
from cuzkd.curves import params
from cuzkd.formats import wtns

CURVES = list(params.CURVES)


def products(matrix, z, r):
    """matrix . z, entry by entry."""
    undo = pow(1 << 256, -2, r)
    values = [int.from_bytes(row.tobytes(), "little") * undo % r for row in matrix.table]
    ends = matrix.row_ptr.tolist()
    return [
        sum(values[matrix.coeff[e]] * z[matrix.cols[e]] for e in range(ends[i], ends[i + 1])) % r
        for i in range(matrix.n_rows)
    ]


def broken(curve, n_rounds, z):
    """Rows that a witness breaks."""
    r = params.CURVES[curve].r
    made = builtin.constraints(curve, n_rounds)
    a, b, c = (products(m, z, r) for m in (made.a, made.b, made.c))
    return [i for i in range(made.a.n_rows) if a[i] * b[i] % r != c[i]]


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("n_rounds", [1, 2, 7])
@pytest.mark.parametrize("preimage", [0, 1, 12345, -1])
def test_witnesses_satisfy_it(curve, n_rounds, preimage):
    preimage %= params.CURVES[curve].r
    made = builtin.constraints(curve, n_rounds)
    z = builtin.witness(curve, n_rounds, preimage)
    assert made.n_constraints == 3 * n_rounds and made.n_public == 1
    assert len(z) == made.a.n_cols == made.b.n_cols == made.c.n_cols == 3 * n_rounds + 2
    assert made.a.n_rows == made.b.n_rows == made.c.n_rows == 3 * n_rounds + 2
    assert broken(curve, n_rounds, z) == []
    assert z[:3] == [1, builtin.digest(curve, n_rounds, preimage), preimage]


@pytest.mark.parametrize("curve", CURVES)
def test_every_wire_matters(curve):
    z = builtin.witness(curve, 3, 99)
    for wire in range(len(z)):
        assert broken(curve, 3, [v + (i == wire) for i, v in enumerate(z)]), wire


@pytest.mark.parametrize("curve", CURVES)
def test_fifth_powers_permute_the_field(curve):
    assert (params.CURVES[curve].r - 1) % 5


def test_its_witness_file(tmp_path):
    wtns.write(tmp_path / "w.wtns", "bn254", builtin.witness("bn254", 4, 5))
    assert wtns.read_header(tmp_path / "w.wtns") == wtns.WitnessHeader(tmp_path / "w.wtns", "bn254", 14)


def test_what_makes_no_circuit():
    with pytest.raises(ValueError, match="n_rounds: expected at least 1, got 0"):
        builtin.constraints("bn254", 0)
    with pytest.raises(ValueError, match="preimage: expected a number in"):
        builtin.witness("bn254", 1, params.CURVES["bn254"].r)
