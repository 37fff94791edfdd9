"""The thorough look: keys of every kind pass, and what is wrong with the others is found and named."""

import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from cuzkd.backend import cpu
from cuzkd.backend.protocol import QUERIES, REDUCTIONS, SparseMatrix
from cuzkd.circuits import assignments, builtin, checks, elimination, fits
from cuzkd.circuits.registry import Registry
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidKey
from cuzkd.formats import affine, bellman, r1cs, zkey
from cuzkd.groth16 import setup
from cuzkd.groth16.constraints import from_rows
from cuzkd.groth16.keys import StreamedKey

KINDS = [(curve, reduction) for curve in CURVES for reduction in REDUCTIONS]


@cache
def chain(curve, reduction="circom", rounds=6):
    return setup.setup(builtin.constraints(curve, rounds), reduction=reduction)


def look(key, expected=None):
    checks.require_sound(key, key.blocks, "my.zkey", expected)


def refused(key, words):
    with pytest.raises(InvalidKey, match=words) as error:
        look(key)
    assert str(error.value).startswith("my.zkey: ")


def with_points(key, query, change):
    """The key with a query changed: change(its points, a copy)."""
    points = getattr(key.arrays, query).copy()
    change(points)
    return replace(key, arrays=replace(key.arrays, **{query: points}))


def swap(i, j):
    def change(points):
        assert points[i].any() and points[j].any() and not np.array_equal(points[i], points[j])
        points[[i, j]] = points[[j, i]]

    return change


@pytest.mark.parametrize(("curve", "reduction"), KINDS)
def test_good_keys_pass(curve, reduction):
    for rounds in (1, 2, 6, 200):
        look(chain(curve, reduction, rounds))


def rows(rng, n, n_wires, terms, empty):
    values = [1, -1, 2, 7, 1 << 200]
    return [
        {} if rng.random() < empty else {rng.randrange(n_wires): rng.choice(values) for _ in range(terms)}
        for _ in range(n)
    ]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("curve", "reduction"), KINDS)
def test_good_keys_of_random_matrices_pass_and_others_do_not(curve, reduction, seed):
    """Any matrices, dense or thin, with wires that are nowhere, and of one constraint, too."""
    rng = random.Random(seed)
    n, n_wires, n_public = ((40, 30, 3), (1, 3, 0), (17, 60, 0), (64, 8, 7), (3, 5, 4), (100, 90, 1))[seed]
    terms, empty = rng.choice([1, 3]), rng.choice([0, 0.4])

    def made():
        return from_rows(curve, n_wires, n_public, *(rows(rng, n, n_wires, terms, empty) for _ in range(3)))

    key, other = (setup.setup(made(), reduction=reduction) for _ in range(2))
    look(key)
    # Of one constraint, hardly a wire of A and B can be tested without C.
    words = "do not fit the constraint matrices" if seed != 1 else "A, B and H do not fit|L, IC or C"
    refused(replace(key, constraints=other.constraints), words)
    without_c = replace(key, constraints=replace(key.constraints, c=None))
    look(without_c)


@pytest.mark.parametrize(("curve", "reduction"), KINDS)
@pytest.mark.parametrize("left_out", ["constraints", "non-linear", "private"])
def test_what_there_is_nothing_of(curve, reduction, left_out):
    """No constraint at all; no constraint with a B; no private wire."""
    if left_out == "constraints":
        made = from_rows(curve, 3, 1, [], [], [])
    elif left_out == "non-linear":
        made = from_rows(curve, 4, 1, [{1: 1, 2: 1}, {3: 2}], [{}, {}], [{}, {}])
    else:
        made = from_rows(curve, 3, 2, [{1: 1}], [{2: 1}], [{1: 1}])
    look(setup.setup(made, reduction=reduction))


def test_how_much_is_tested():
    """All of it, but where hardly anything is."""
    made = builtin.constraints("bn254", 50)
    fit = fits.Fit(made, chain("bn254", rounds=50).arrays, [5])
    assert (fit.a.untested, fit.b.untested) == (0, 0)
    one = from_rows("bn254", 3, 0, [{1: 1}], [{2: 1}], [{}])
    fit = fits.Fit(one, setup.setup(one).arrays, [5])
    assert (fit.a.untested, fit.b.untested) == (1, 0)
    assert fit.a.partners == [2]  # and of A one in row 1, where B is empty


@pytest.mark.parametrize(("curve", "reduction"), KINDS)
def test_no_row_has_a_wire_and_its_partner(curve, reduction):
    """What the whole test rests on, looked at row by row."""
    rng = random.Random(5)
    made = from_rows(curve, 30, 2, *(rows(rng, 60, 30, 3, 0.2) for _ in range(3)))
    fit = fits.Fit(made, setup.setup(made).arrays, [5])
    for side, mine, other in ((fit.a, made.a, made.b), (fit.b, made.b, made.a)):
        assert side.partners
        for number, wire in enumerate(side.partners):
            for i in range(made.n_rows):
                here = slice(int(other.row_ptr[i]), int(other.row_ptr[i + 1]))
                if wire in other.cols[here]:
                    mine_here = mine.cols[int(mine.row_ptr[i]) : int(mine.row_ptr[i + 1])]
                    assert not (side.round[mine_here] == number).any()


@pytest.mark.parametrize(("curve", "reduction"), KINDS)
def test_a_key_of_another_circuit_with_the_same_counts(curve, reduction, monkeypatch):
    key = chain(curve, reduction)
    constants = builtin.round_constants
    monkeypatch.setattr(builtin, "round_constants", lambda *known: [k + 1 for k in constants(*known)])
    other = builtin.constraints(curve, 6)
    assert other.n_constraints == key.constraints.n_constraints
    refused(replace(key, constraints=other), "A, B and H do not fit the constraint matrices")


@pytest.mark.parametrize(("curve", "reduction"), KINDS)
@pytest.mark.parametrize(
    ("query", "change", "words"),
    [
        ("a_g1", swap(5, 8), "A, B and H do not fit"),
        ("a_g1", swap(0, 1), "A, B and H do not fit"),
        ("b_g1", swap(5, 8), "B1 and B2 are not the same multiples"),
        ("b_g2", swap(5, 8), "B1 and B2 are not the same multiples"),
        ("h_g1", swap(0, 1), "A, B and H do not fit"),
        ("h_g1", swap(2, 14), "A, B and H do not fit"),
        ("h_g1", lambda points: points[4].fill(0), "A, B and H do not fit"),
        ("a_g1", lambda points: points[3].fill(0), "A, B and H do not fit"),
    ],
)
def test_points_in_disorder(curve, reduction, query, change, words):
    refused(with_points(chain(curve, reduction), query, change), words)


@pytest.mark.parametrize(("curve", "reduction"), KINDS)
def test_both_b_in_disorder(curve, reduction):
    key = chain(curve, reduction)
    for query in ("b_g1", "b_g2"):
        key = with_points(key, query, swap(5, 8))
    refused(key, "A, B and H do not fit")


@pytest.mark.parametrize(("curve", "reduction"), KINDS)
def test_other_roots_and_another_reduction(curve, reduction):
    key = chain(curve, reduction, rounds=50)  # smaller domains may have the same root from both
    family = 12 - key.arrays.root_family
    refused(
        replace(key, arrays=replace(key.arrays, root_family=family)), f"with roots of unity from {family}"
    )
    other = next(r for r in REDUCTIONS if r != reduction)
    refused(replace(key, arrays=replace(key.arrays, reduction=other)), "do not fit")


@pytest.mark.parametrize("family", [5, 7])
def test_the_root_family_is_found(family, monkeypatch):
    """A key over BN254 in bellman's format does not say which roots it was made with."""
    shape_for = setup.shape_for
    monkeypatch.setattr(setup, "shape_for", lambda *known: replace(shape_for(*known), root_family=family))
    key = setup.setup(builtin.constraints("bn254", 50), reduction="bellman")
    looked_at = checks.Checks(key, "my.params", families=[5, 7])
    for query in QUERIES:
        assert len(list(looked_at.watch(query, key.blocks(query)))) == 1
    assert looked_at.conclude() == family


def in_blocks(key, size):
    def blocks(query):
        points = getattr(key.arrays, query)
        return lambda: (points[i : i + size] for i in range(0, len(points), size))

    return StreamedKey(
        key.vk, key.beta_g1, key.delta_g1, key.head().arrays, key.constraints, {q: blocks(q) for q in QUERIES}
    )


@pytest.mark.parametrize(("curve", "reduction"), KINDS)
def test_blocks_are_looked_at_as_a_whole_is(curve, reduction):
    key = chain(curve, reduction)
    told = []
    for size in (1, 7, 1000):
        streamed = in_blocks(key, size)
        checks.require_sound(streamed, streamed.blocks, "my.zkey", told=told.append)
        assert sum(told) == key.arrays.host_bytes
        told.clear()
    refused(in_blocks(with_points(key, "h_g1", swap(2, 14)), 5), "A, B and H do not fit")
    bad = with_points(key, "l_g1", lambda points: points[9, 0].fill(1))
    refused(
        in_blocks(bad, 4), rf"C: point 9 of {len(key.arrays.l_g1)}: expected a point of the r-subgroup of g1"
    )


def off_subgroup(curve, group):
    """A point of the curve outside the subgroup: almost any x will do."""
    c = CURVES[curve]
    for x in range(1, 100):
        if group == "g1":
            y2 = (x**3 + c.b) % c.q
            y = pow(y2, (c.q + 1) // 4, c.q)
            if y * y % c.q == y2:
                point = affine.g1_to_array(curve, (x, y))
        else:
            y = affine.fq2_sqrt(affine.g2_right_side(curve, (x, 1)), c.q)
            if y is not None:
                point = affine.g2_to_array(curve, ((x, 1), y))
        if "point" in locals() and cpu.check_points(curve, group, point[None], subgroup=True) == 0:
            assert cpu.check_points(curve, group, point[None]) == -1
            return point
    raise AssertionError


@pytest.mark.parametrize(
    ("curve", "query", "name"),
    [
        ("bls12_381", "a_g1", "A"), ("bls12_381", "b_g1", "B1"), ("bls12_381", "b_g2", "B2"),
        ("bls12_381", "l_g1", "C"), ("bls12_381", "h_g1", "H"), ("bn254", "b_g2", "B2"),
    ],
)  # fmt: skip
def test_a_point_outside_the_subgroup_among_many(curve, query, name):
    group = "g2" if query == "b_g2" else "g1"
    bad = off_subgroup(curve, group)
    key = chain(curve, rounds=200)
    count = len(getattr(key.arrays, query))
    for at in (0, count // 2, count - 1):
        changed = with_points(key, query, lambda points, at=at: points.__setitem__(at, bad))
        refused(
            changed,
            rf"{name}: point {at} of {count}: expected a point of the r-subgroup of {group} of {curve}",
        )


# -- L, IC and C --

NOT_OF_C = "L, IC or C: the key was not made for these constraints"


def with_ic(key, change):
    ic = key.vk.ic.copy()
    change(ic)
    return replace(key, vk=replace(key.vk, ic=ic))


@cache
def squares(curve, reduction, change=None):
    """Two public wires, a bit that is kept one, a linear row. change: one of them, in C alone."""
    a = [{3: 1}, {3: 1, 4: 2}, {5: 1}, {}, {5: 1, 3: 7}]
    b = [{3: 1}, {4: 1}, {5: 1, 0: -1}, {}, {4: 1}]
    c = [{4: 1}, {1: 1, 3: -2}, {}, {6: 1, 3: -1, 0: 5}, {2: 1, 6: 4}]
    if change == "entry":
        c[1] = {1: 1, 3: -3}
    elif change == "wire":
        c[4] = {2: 1, 5: 4}
    elif change == "more":
        c[3] = {6: 1, 3: -1, 0: 5, 4: 1}
    elif change == "less":
        c[1] = {1: 1}
    elif change == "a bit":
        c[2] = {5: 1}
    elif change == "rows":
        c[0], c[1] = c[1], c[0]
    return setup.setup(from_rows(curve, 7, 2, a, b, c), reduction=reduction)


def another_set_up(curve, reduction):
    return squares.__wrapped__(curve, reduction)


@pytest.mark.parametrize(("curve", "reduction"), KINDS)
def test_l_of_which_something_is_wrong(curve, reduction):
    for key in (squares(curve, reduction), chain(curve, reduction)):
        n = len(key.arrays.l_g1)
        look(key)
        for i, j in ((0, 1), (0, n - 1), (n - 2, n - 1)):
            refused(with_points(key, "l_g1", swap(i, j)), NOT_OF_C)
        for i in range(n):
            other = key.arrays.a_g1[3]  # any point
            refused(with_points(key, "l_g1", lambda p, i=i, o=other: p.__setitem__(i, o)), NOT_OF_C)
    key, other = squares(curve, reduction), another_set_up(curve, reduction)
    of_other = with_points(key, "l_g1", lambda points: points.__setitem__(slice(None), other.arrays.l_g1))
    refused(of_other, NOT_OF_C)
    with pytest.raises(InvalidKey, match=NOT_OF_C):
        look(of_other, key.vk)


@pytest.mark.parametrize(("curve", "reduction"), KINDS)
def test_ic_of_which_something_is_wrong(curve, reduction):
    key, other = squares(curve, reduction), another_set_up(curve, reduction)
    for i, j in ((0, 1), (1, 2)):
        refused(with_ic(key, swap(i, j)), NOT_OF_C)
    of_other = with_ic(key, lambda ic: ic.__setitem__(slice(None), other.vk.ic))
    refused(of_other, NOT_OF_C)
    with pytest.raises(InvalidKey, match="ic differs from the verification key"):
        look(of_other, key.vk)
    with pytest.raises(InvalidKey, match=NOT_OF_C):  # of a verification key that tells the same lie
        look(of_other, of_other.vk)


@pytest.mark.parametrize("c_known", [True, False])
@pytest.mark.parametrize(("curve", "reduction"), KINDS)
def test_infinity_where_none_can_be(curve, reduction, c_known):
    key = squares(curve, reduction)
    if not c_known:
        key = replace(key, constraints=replace(key.constraints, c=None))
    look(key)
    for i in range(3):
        changed = with_ic(key, lambda ic, i=i: ic[i].fill(0))
        refused(changed, f"IC: point {i} of 3 is infinity, but in A or B its wire has another point")
    for change, at in ((lambda points: points.fill(0), 0), (lambda points: points[2].fill(0), 2)):
        changed = with_points(key, "l_g1", change)
        refused(changed, f"C: point {at} of 4 is infinity, but in A or B its wire has another point")
    last = with_points(key, "l_g1", lambda points: points[3].fill(0))  # its wire is in C alone
    if c_known:
        refused(last, NOT_OF_C)
    else:
        look(last)


@pytest.mark.parametrize("change", ["entry", "wire", "more", "less", "a bit", "rows"])
@pytest.mark.parametrize(("curve", "reduction"), KINDS)
def test_another_c(curve, reduction, change):
    key, other = squares(curve, reduction), squares(curve, reduction, change)
    look(other)
    refused(replace(key, constraints=other.constraints), NOT_OF_C)
    refused(replace(other, constraints=key.constraints), NOT_OF_C)


@pytest.mark.parametrize("curve", list(CURVES))
def test_another_c_in_the_file(curve, tmp_path):
    """Constraints that differ from the key's in C, as an operator would add them."""
    circuits = Registry(tmp_path / "state")
    for name, change in (("same", None), ("other", "entry")):
        r1cs.write(tmp_path / f"{name}.r1cs", squares(curve, "circom", change).constraints)
    zkey.write(tmp_path / "c.zkey", squares(curve, "circom"))
    bellman.write_params(tmp_path / "c.params", squares(curve, "bellman"))
    for known in ({"zkey": tmp_path / "c.zkey"}, {"params": tmp_path / "c.params"}):
        with pytest.raises(InvalidKey, match=rf"^c\.{next(iter(known))}: {NOT_OF_C}"):
            circuits.add("c", **known, r1cs=tmp_path / "other.r1cs")
        assert not circuits.list()
        assert circuits.add("c", **known, r1cs=tmp_path / "same.r1cs").constraint_check == "checked"
        circuits.check("c")
        circuits.remove("c")


def values(curve, matrix, z):
    """matrix z in plain ints."""
    r = CURVES[curve].r
    z = limbs.to_ints(fits.widened(z))
    table = [x * pow(1 << 512, -1, r) % r for x in limbs.to_ints(matrix.table)]
    ends = [int(end) for end in matrix.row_ptr]
    return [
        sum(table[matrix.coeff[e]] * z[matrix.cols[e]] for e in range(*ends[i : i + 2])) % r
        for i in range(matrix.n_rows)
    ]


def assigned(made):
    """An assignment that was looked at row by row."""
    y = fits.random_scalars(made.n_wires)
    shape = setup.shape_for(made, "circom")
    found = assignments.assign(made, shape, [shape.root_family], y)
    assert found.y[0] is y and len(found.z) == len(found.y)
    total = [0] * made.n_rows
    for z, y in zip(found.z, found.y, strict=True):
        products = zip(values(made.curve, made.a, z), values(made.curve, made.b, y), strict=True)
        total = [t + u * v for t, (u, v) in zip(total, products, strict=True)]
    r = CURVES[made.curve].r
    assert [t % r for t in total] == values(made.curve, made.c, found.rho)
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("curve", list(CURVES))
def test_every_row_is_true_of_an_assignment(curve, seed):
    rng = random.Random(seed)
    n, n_wires, terms = rng.choice([(60, 30, 3), (40, 60, 1), (40, 40, 2), (30, 90, 3)])
    empty = rng.choice([0, 0.3])
    assigned(from_rows(curve, n_wires, 2, *(rows(rng, n, n_wires, terms, empty) for _ in range(3))))


@pytest.mark.parametrize("curve", list(CURVES))
def test_how_much_has_a_part(curve):
    """All that can be anything but zero."""
    one = assigned(builtin.constraints(curve, 50))
    assert (one.untested, len(one.z)) == (0, 1)
    two = assigned(squares(curve, "circom").constraints)
    assert (two.untested, len(two.z)) == (0, 2)
    assert assigned(from_rows(curve, 4, 0, [{}, {1: 1}], [{}, {2: 1}], [{3: 1}, {1: 1}])).untested == 1  # = 0


def test_rows_without_a_pivot(monkeypatch):
    """The same row twice is made 0 = 0, and what shares its factor follows: no pivot of B makes up for a zero."""
    twice = [({1: 1}, {2: 1}, {3: 1})] * 2
    more = [({1: 1}, {4: 1}, {5: 1}), ({1: 1}, {6: 1}, {5: 1}), ({7: 1}, {8: 1}, {9: 1})]
    made = from_rows("bn254", 11, 0, *zip(*twice, *more, strict=True))
    found = assigned(made)
    zero = np.flatnonzero(~found.rho.any(axis=1))
    assert list(zero) == [3, 5] and found.untested == 2
    monkeypatch.setattr(assignments, "TRIES", 1)  # whoever gives up gives up all
    assert assigned(made).untested == 3


def test_a_coefficient_of_zero_is_no_pivot():
    """As a file may have one."""
    made = from_rows("bn254", 5, 0, [{1: 1}, {2: 1}], [{2: 1}, {2: 1}], [{3: 5, 4: 1}, {4: 1}])
    table = made.c.table.copy()
    table[made.c.coeff[0]] = 0
    assigned(replace(made, c=replace(made.c, table=table)))


def test_deep_and_long(monkeypatch):
    """Levels beyond the bound are left; entries and rows come in parts of any size."""
    n = 40
    made = from_rows(
        "bn254",
        n + 2,
        0,
        [{1: 1}] * n,
        [{i + 2: 1} for i in range(n)],
        [{i + 1: 1, i + 2: 3} for i in range(n)],
    )
    assert assigned(made).untested == 0
    monkeypatch.setattr(elimination, "BLOCK", 5)
    monkeypatch.setattr(assignments, "ROWS", 3)
    assert assigned(made).untested == 0
    monkeypatch.setattr(elimination, "MAX_LEVELS", 3)
    assigned(made)


# -- two matrices that ought to be the same --


def shuffled(matrix, rng):
    """The same rows: entries in another order, a coefficient split in two, another table."""
    cols, coeff, ends = [], [], [0]
    table = np.concatenate([matrix.table, matrix.table[::-1]])
    for i in range(matrix.n_rows):
        entries = list(range(int(matrix.row_ptr[i]), int(matrix.row_ptr[i + 1])))
        rng.shuffle(entries)
        for e in entries:
            k = int(matrix.coeff[e])
            cols.append(matrix.cols[e])
            coeff.append(rng.choice([k, len(table) - 1 - k]))
        if i % 3 == 0:  # + 1 - 1 of some wire
            cols += [2, 2]
            coeff += [0, 1]
        ends.append(len(cols))
    return SparseMatrix(
        matrix.n_cols, np.array(ends, np.uint64), np.array(cols, np.uint32), np.array(coeff, np.uint32), table
    )


@pytest.mark.parametrize("curve", list(CURVES))
def test_rows_are_compared_whatever_their_spelling(curve, monkeypatch):
    monkeypatch.setattr(checks, "ROW_BLOCK", 7)
    made = builtin.constraints(curve, 9)
    other = replace(made, a=shuffled(made.a, random.Random(1)), b=shuffled(made.b, random.Random(2)), c=None)
    checks.require_same_rows(other, made, "k.zkey", "c.r1cs")
    for letter in "ab":
        matrix = getattr(made, letter)
        for row in (0, 6, 7, 20):
            coeff = matrix.coeff.copy()
            coeff[int(matrix.row_ptr[row])] = 1 - min(coeff[int(matrix.row_ptr[row])], 1)
            differs = replace(made, **{letter: replace(matrix, coeff=coeff)})
            words = f"k.zkey: constraint {row}: its row of {letter.upper()} differs from that in c.r1cs"
            with pytest.raises(InvalidKey, match=words):
                checks.require_same_rows(differs, made, "k.zkey", "c.r1cs")


def test_counts_are_compared_first():
    made = builtin.constraints("bn254", 9)
    for other, words in (
        (builtin.constraints("bls12_381", 9), r"curve: expected bls12_381 \(c.r1cs\), found bn254"),
        (builtin.constraints("bn254", 8), r"n_wires: expected 26 \(c.r1cs\), found 29"),
        (from_rows("bn254", 29, 1, [], [], []), r"n_constraints: expected 0 \(c.r1cs\), found 27"),
        (from_rows("bn254", 29, 2, [], [], []), r"n_public: expected 2 \(c.r1cs\), found 1"),
    ):
        with pytest.raises(InvalidKey, match=f"k.zkey: {words}: not of one circuit"):
            checks.require_same_rows(made, other, "k.zkey", "c.r1cs")
