"""The .params file: read as plain ints say it is, and each lie in it named."""

import os
import shutil
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from formats import bellman_files, plain_points
from formats.bellman_files import COUNTS, GROUPS, IN_A, IN_B, LISTS, N_WIRES, SINGLE
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzkd.curves import points
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidInput, InvalidKey, MalformedFile
from cuzkd.formats import bellman, bellman_points
from cuzkd.groth16 import setup
from cuzkd.groth16.constraints import from_rows

SAPLING = Path(__file__).parent.parent / "vectors" / "sapling_output" / "sapling-output.params"
OF_QUERY = {"h_g1": "h", "l_g1": "l", "a_g1": "a", "b_g1": "b1", "b_g2": "b2"}


def write(path, data):
    path.write_bytes(data)
    return path


def load(path, data, curve, **options):
    return bellman.open_params(write(path, data), bellman_files.constraints(curve), **options).load()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "key.params"


def in_blocks_of(n, monkeypatch):
    for module in (bellman, bellman_points):
        monkeypatch.setattr(module, "BLOCK_POINTS", n)


# -- what is read --


def spread(made, name):
    """What KeyArrays should hold of a filtered list."""
    wires = {"a": IN_A, "b1": IN_B, "b2": IN_B}.get(name)
    found = made.lists[name]
    if name == "h":
        return [*found, None]
    return found if wires is None else [dict(zip(wires, found, strict=True)).get(i) for i in range(N_WIRES)]


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("block", [1, 2, 3, 1 << 15])
def test_all_of_it_is_read(curve, block, path, monkeypatch):
    in_blocks_of(block, monkeypatch)
    made = bellman_files.params(curve)
    key = load(path, made.bytes(), curve)
    shape = key.arrays
    assert (shape.reduction, shape.root_family) == ("bellman", {"bls12_381": 7, "bn254": 5}[curve])
    assert (shape.domain, shape.n_rows, shape.n_wires, shape.n_public) == (8, 5, 7, 2)
    for query, name in OF_QUERY.items():
        law = points.group(curve, GROUPS[name])
        assert law.decode(getattr(shape, query)) == spread(made, name), name
    for name, found in (
        ("alpha_g1", key.vk.alpha_g1), ("beta_g1", key.beta_g1), ("beta_g2", key.vk.beta_g2),
        ("gamma_g2", key.vk.gamma_g2), ("delta_g1", key.delta_g1), ("delta_g2", key.vk.delta_g2),
    ):  # fmt: skip
        assert points.group(curve, GROUPS[name]).decode(found[None]) == [made.single[name]], name
    assert points.g1(curve).decode(key.vk.ic) == made.lists["ic"]


@pytest.mark.parametrize("curve", CURVES)
def test_blocks_come_again_and_need_no_file_of_that_name(curve, path, monkeypatch):
    in_blocks_of(3, monkeypatch)
    write(path, bellman_files.params(curve).bytes())
    key = bellman.open_params(path, bellman_files.constraints(curve), root_family=5)
    assert key.arrays.root_family == 5
    path.write_bytes(b"another file")
    path.unlink()
    for query in OF_QUERY:
        blocks = [list(key.blocks(query)) for _ in range(2)]
        assert [len(block) for block in blocks[0]][:-1] == [3] * (len(blocks[0]) - 1)
        assert all(np.array_equal(x, y) for x, y in zip(*blocks, strict=True))


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("block", [2, 1 << 15])
def test_lists_of_every_wire(curve, block, path, monkeypatch):
    """snarkjs's dialect, infinity as zeros or with its flag; l may have it, too."""
    in_blocks_of(block, monkeypatch)
    filtered = load(path, bellman_files.params(curve).bytes(), curve)
    every = bellman_files.with_every_wire(bellman_files.params(curve))
    flagged = every.bytes()
    plain = flagged.replace(bytes([0x40]) + bytes(63), bytes(64))
    assert plain.count(bytes(64)) >= 4
    for data in (flagged, plain):
        family = filtered.arrays.root_family
        assert load(path, data, curve, root_family=family).digest() == filtered.digest()
        assert load(path, data, curve).arrays.root_family == 5  # snarkjs's, on both curves
    every.lists["l"][2] = None
    assert not load(path, every.bytes(), curve).arrays.l_g1[2].any()


@pytest.mark.parametrize("curve", CURVES)
def test_a_head_needs_no_constraints(curve, path):
    made = bellman_files.params(curve)
    made.trailing = b"whatever"
    for given_curve in (None, curve):
        head = bellman.read_params_head(write(path, made.bytes()), given_curve)
        assert head.curve == curve
        assert dict(head.counts) == {name: n for name, n in COUNTS.items() if name != "ic"}
        assert (head.trailing_bytes, head.transcript) == (8, None)
        assert points.g1(curve).decode(head.vk.ic) == made.lists["ic"]
        assert points.g1(curve).decode(np.stack([head.beta_g1, head.delta_g1])) == [
            made.single["beta_g1"], made.single["delta_g1"],
        ]  # fmt: skip


# -- transcripts --


def transcript(curve, deltas, claimed=None):
    g1, g2 = (bellman_files.multiples(curve, group)[7] for group in ("g1", "g2"))
    rest = plain_points.encode(curve, "g1", g1) * 2 + plain_points.encode(curve, "g2", g2) + bytes(64)
    body = b"".join(plain_points.encode(curve, "g1", delta) + rest for delta in deltas)
    return bytes(64) + struct.pack(">I", len(deltas) if claimed is None else claimed) + body


@pytest.mark.parametrize("curve", CURVES)
def test_transcripts(curve, path):
    made = bellman_files.params(curve)
    delta, other = made.single["delta_g1"], made.single["alpha_g1"]
    for trailing, expected in (
        (b"", None),
        (bytes(67), None),
        (transcript(curve, []), 0),
        (transcript(curve, [delta]), 1),
        (transcript(curve, [other, delta]), 2),
        (transcript(curve, [other], claimed=2), None),  # something else, then
        (transcript(curve, [other]) + b"\0", None),
        (transcript(curve, [], claimed=2**32 - 1), None),
    ):
        made.trailing = trailing
        assert bellman.read_params_head(write(path, made.bytes())).transcript == expected
        load(path, made.bytes(), curve)
    made.trailing = transcript(curve, [delta, other])
    with pytest.raises(InvalidKey, match="transcript: the last of 2 contributions made another delta_g1"):
        bellman.read_params_head(write(path, made.bytes()))


# -- lies --


@pytest.mark.parametrize("curve", CURVES)
def test_cut_anywhere(curve, path):
    data = bellman_files.params(curve).bytes()
    for n in range(1, len(data), 13):
        with pytest.raises(MalformedFile, match=r"file is cut|file ends|alpha_g1"):
            load(path, data[:n], curve)
    with pytest.raises(MalformedFile, match="file is empty"):
        load(path, b"", curve)
    with pytest.raises(InvalidInput, match="cannot be opened"):
        bellman.read_params_head(path.with_name("none"))
    with pytest.raises(InvalidInput, match="not a regular file"):
        bellman.read_params_head(path.parent)


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("name", LISTS)
def test_a_count_beyond_the_file(curve, name, path):
    made = bellman_files.params(curve)
    data = bytearray(made.bytes())
    at = made.offset(name) - 4
    for claimed in (2**32 - 1, 2**31, len(data)):
        struct.pack_into(">I", data, at, claimed)
        tracemalloc.start()
        with pytest.raises(MalformedFile, match=rf"{name}: the count at byte {at} claims {claimed} points"):
            load(path, bytes(data), curve)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 20


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("name", LISTS)
def test_a_long_file_of_nothing(curve, name, path):
    """Its length bears the counts out, and there is nothing in it."""
    made = bellman_files.params(curve)
    data = bytearray(made.bytes())
    at = made.offset(name) - 4
    struct.pack_into(">I", data, at, 2**31)
    with write(path, data[: at + 4]).open("r+b") as file:
        file.truncate(1 << 40)
    tracemalloc.start()
    with pytest.raises((MalformedFile, InvalidKey), match=rf"{name}: |b1"):
        bellman.open_params(path, bellman_files.constraints(curve)).load()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize(
    ("names", "more", "words"),
    [
        (["ic"], 1, r"ic: expected 3 points \(.* the constant and 2 public wires\), found 4"),
        (["ic"], -1, r"ic: expected 3 points .* found 2"),
        (["h"], 1, r"h: expected 7 points \(.* 5 rows, and so a domain of 8, less one\), found 8"),
        (["h"], -4, r"h: expected 7 points .* found 3"),
        (["l"], 1, r"l: expected 4 points \(.* private wires\), found 5"),
        (
            ["a"],
            -1,
            r"a: expected 5 points \(the constraint system has so many of its 7 wires in A\), found 4",
        ),
        (["b1", "b2"], 1, r"b1: expected 3 points \(.* in B\), found 4"),
        (["b1", "b2"], 4, r"b1: expected 3 points \(.* in B\), found 7"),
        (["a"], 2, r"a: expected 5 points .* found 7"),
    ],
)
def test_lists_of_another_circuit(curve, names, more, words, path):
    made = bellman_files.params(curve)
    for name in names:
        made.lists[name] = (made.lists[name] * 4)[: COUNTS[name] + more]
    with pytest.raises(InvalidKey, match=words):
        load(path, made.bytes(), curve)


@pytest.mark.parametrize("curve", CURVES)
def test_lists_that_contradict_each_other(curve, path):
    made = bellman_files.params(curve)
    made.lists["b2"].pop()
    with pytest.raises(MalformedFile, match="b2: expected 3 points, as in b1, found 2"):
        bellman.read_params_head(write(path, made.bytes()))
    made = bellman_files.params(curve)
    made.lists["ic"] = []
    with pytest.raises(
        MalformedFile, match="ic: expected at least the point of the constant wire, found none"
    ):
        bellman.read_params_head(write(path, made.bytes()))


def test_the_other_curve(path):
    write(path, bellman_files.params("bn254").bytes())
    with pytest.raises(
        InvalidKey, match="expected a key over bls12_381, as the constraints are, found bn254"
    ):
        bellman.open_params(path, bellman_files.constraints("bls12_381"))
    for curve, data in (
        ("bls12_381", path.read_bytes()),
        ("bn254", bellman_files.params("bls12_381").bytes()),
    ):
        with pytest.raises(MalformedFile, match="alpha_g1: "):
            bellman.read_params_head(write(path, data), curve)


def place_of(name):
    """A list's second point; of single points, the only one."""
    return 1 if name in LISTS else 0


def words_for(name, curve, what):
    if name == "alpha_g1":  # by which the curve is known
        return rf"alpha_g1: expected an uncompressed point of .*as one of {curve}: {what}"
    return rf"{name}: point 1 of {COUNTS[name]}: {what}" if name in LISTS else rf"{name}: {what}"


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("name", GROUPS)
def test_points_that_are_none(curve, name, path):
    made = bellman_files.params(curve)
    data = made.bytes()
    at = made.offset(name, place_of(name))
    n, size = plain_points.q_bytes(curve), plain_points.size(curve, GROUPS[name])
    flags = {0x80: "flag 0x80 is set", 0x40: "the flag of infinity is set, and other bits are not zero"}
    if curve == "bls12_381":
        flags[0x20] = "flag 0x20 is set"
    lies = [(at, bytes([data[at] | flag]), what) for flag, what in flags.items()]
    q = CURVES[curve].q.to_bytes(n, "big")
    lies += [(at + i * n, q, "a coordinate is not below q") for i in range(size // n)]
    lies.append((at, bytes([0x40]) + bytes(size - 1), "is the point at infinity, which has no place here"))
    lies.append((at, bytes(size), "all coordinates are zero without the flag"))
    if name in SINGLE:
        changed = bytes([data[at + size - 1] ^ 1])
        lies.append((at + size - 1, changed, f"point is not on (the twist of )?{curve}"))
    for where, what, words in lies:
        lying = bytearray(data)
        lying[where : where + len(what)] = what
        with pytest.raises(MalformedFile, match=words_for(name, curve, words)):
            load(path, bytes(lying), curve)


@pytest.mark.parametrize("curve", CURVES)
def test_lists_of_every_wire_that_lie(curve, path):
    """Infinity exactly where no row has the wire."""
    for name, wire, words in (
        ("a", 5, "a: wire 5: expected infinity, as no row has this wire"),
        ("a", 3, "a: wire 3: expected a point, as rows have this wire"),
        ("b1", 6, "b1: wire 6: expected infinity"),
        ("b2", 0, "b2: wire 0: expected a point"),
    ):
        made = bellman_files.with_every_wire(bellman_files.params(curve))
        was = made.lists[name][wire]
        made.lists[name][wire] = None if was else bellman_files.multiples(curve, LISTS[name])[30]
        with pytest.raises(InvalidKey, match=words):
            load(path, made.bytes(), curve)
    made = bellman_files.with_every_wire(bellman_files.params(curve))
    data = bytearray(made.bytes())
    data[made.offset("b2", 4)] |= 0x80
    with pytest.raises(MalformedFile, match="b2: point 4 of 7: flag 0x80"):
        load(path, bytes(data), curve)


def test_a_file_that_shrinks(path):
    """Behind the reader's back: an error, and no fault. Deleted or replaced, it is still the one that was opened."""
    shutil.copyfile(SAPLING, path)
    head = bellman.read_params_head(path)
    constraints = from_rows_of(head)
    key = bellman.open_params(path, constraints)
    os.rename(path, path.with_suffix(".old"))
    path.write_bytes(b"another")
    before = next(key.blocks("h_g1"))
    os.truncate(path.with_suffix(".old"), 100_000)
    with pytest.raises(MalformedFile, match="shortened"):
        list(key.blocks("b_g2"))
    assert before.any()


def from_rows_of(head):
    """Some constraint system that has the counts of a key."""
    n_public, n_a, n_b = len(head.vk.ic) - 1, head.counts["a"], head.counts["b1"]
    n_wires = n_public + 1 + head.counts["l"]
    rows = head.counts["h"] + 1 - n_public - 1
    a = [{wire: 1} for wire in range(n_public + 1, n_a)]
    b = [{wire: 1} for wire in range(n_b)]
    pad = [[{}] * (rows - len(x)) for x in (a, b)]
    return from_rows(head.curve, n_wires, n_public, a + pad[0], b + pad[1], [{}] * rows)


@pytest.mark.parametrize("curve", CURVES)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_changed_bytes_raise_nothing_else(curve, data, tmp_path_factory):
    made = bellman_files.params(curve)
    if data.draw(st.booleans()):
        made = bellman_files.with_every_wire(made)
    made.trailing = transcript(curve, [made.single["delta_g1"]])
    raw = bytearray(made.bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + 4] = data.draw(st.binary(max_size=6))
    path = tmp_path_factory.getbasetemp() / "changed.params"
    try:
        key = load(path, bytes(raw), curve)
    except (MalformedFile, InvalidKey):
        return
    bellman.write_params(path, key)


# -- writing --


@pytest.mark.parametrize("curve", CURVES)
def test_written_as_read(curve, path, monkeypatch):
    in_blocks_of(3, monkeypatch)
    made = bellman_files.params(curve)
    made.trailing = b"trailing"
    key = bellman.open_params(write(path, made.bytes()), bellman_files.constraints(curve))
    out = path.with_name("out")
    for source in (key, key.load()):
        bellman.write_params(out, source, trailing=b"trailing")
        assert out.read_bytes() == made.bytes()
    every = bellman_files.with_every_wire(made).bytes()
    for source in (key, key.load()):
        bellman.write_params(out, source, every_wire=True, trailing=b"trailing")
        assert out.read_bytes() == every.replace(bytes([0x40]) + bytes(63), bytes(64))


@pytest.mark.parametrize("curve", CURVES)
def test_a_set_up_survives(curve, path):
    """A key that makes sense, over domains that are full and that are not."""
    for n in (1, 2, 3, 6):
        chain = [{wire: 1} for wire in (2, *range(3, n + 2), 1)]
        constraints = from_rows(curve, n + 2, 1, chain[:-1], chain[:-1], chain[1:])
        key = setup.setup(constraints, reduction="bellman")
        bellman.write_params(path, key)
        assert bellman.open_params(path, constraints, key.arrays.root_family).load().digest() == key.digest()


def test_keys_that_the_format_cannot_hold(path):
    rows = [{1: 1}], [{2: 1}], [{2: 1}]
    with pytest.raises(InvalidKey, match=r"bellman reduction on the smallest domain, 2\^2, not of circom"):
        bellman.write_params(path, setup.setup(from_rows("bls12_381", 3, 1, *rows)))
    spare = setup.setup(from_rows("bls12_381", 5, 1, *rows), reduction="bellman")
    with pytest.raises(InvalidKey, match="l: private wire 1: is the point at infinity"):
        bellman.write_params(path, spare)
    assert list(path.parent.iterdir()) == []
    bellman.write_params(path, spare, every_wire=True)
    assert bellman.open_params(path, spare.constraints, root_family=7).load().digest() == spare.digest()

    for name, array, words in (
        ("a", spare.arrays.a_g1, "a: wire 1: expected a point, as rows have this wire"),
        ("b1", spare.arrays.b_g1, "b1: wire 2: expected a point"),
        ("h", spare.arrays.h_g1, "h: power 1 of tau: expected a point"),
        ("ic", spare.vk.ic, "ic: point 1 of 2 is the point at infinity"),
    ):
        place = {"b1": 2}.get(name, 1)
        was = array[place].copy()
        array[place] = 0
        with pytest.raises(InvalidKey, match=words):
            bellman.write_params(path, spare, every_wire=True)
        array[place] = was
    spare.arrays.a_g1[4] = spare.arrays.a_g1[0]
    with pytest.raises(InvalidKey, match="a: wire 4: expected infinity, as no row has this wire"):
        bellman.write_params(path, spare, every_wire=True)
    spare.arrays.a_g1[4] = 0
    spare.arrays.h_g1[3] = spare.arrays.a_g1[0]
    with pytest.raises(InvalidKey, match="h: power 3 of tau: expected infinity, as it is the last"):
        bellman.write_params(path, spare, every_wire=True)
