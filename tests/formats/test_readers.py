"""The native readers of points against plain ints: the same numbers in and out, and each bad point named."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzkd.backend import cpu, readers
from cuzkd.curves import limbs, params, points

CURVES = ["bn254", "bls12_381"]
GROUPS = ["g1", "g2"]
BYTES = {"bn254": 32, "bls12_381": 48}


def point_shape(curve, group):
    return (2, BYTES[curve] // 8) if group == "g1" else (2, 2, BYTES[curve] // 8)


def in_file(curve, group, numbers):
    """Numbers of one point as x y, or x.c0 x.c1 y.c0 y.c1, to bytes."""
    order = range(2) if group == "g1" else (1, 0, 3, 2)
    return b"".join(numbers[i].to_bytes(BYTES[curve], "big") for i in order)


def some_points(curve, group, n):
    """n multiples of the generator, with infinity here and there. Array, and bytes made by plain ints."""
    scalars = limbs.from_ints([0 if i % 5 == 3 else i * i + 1 for i in range(n)], 4)
    array = cpu.fixed_base_mul(curve, group, scalars)
    numbers = limbs.from_montgomery(array, params.CURVES[curve].q)
    each = len(numbers) // n
    raw = bytearray()
    for i in range(0, len(numbers), each):
        raw += in_file(curve, group, numbers[i : i + each])
        if not any(numbers[i : i + each]):
            raw[-each * BYTES[curve]] = 0x40
    return array, bytes(raw)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("n", [1, 7, 3000])
def test_both_ways(curve, group, n):
    array, raw = some_points(curve, group, n)
    out = np.full((n, *point_shape(curve, group)), 7, np.uint64)
    assert readers.decode_points(curve, group, raw, out) is None
    assert np.array_equal(out, array)
    assert readers.encode_points(curve, group, array) == raw
    padded = memoryview(b"?" + raw)[1:]  # at no alignment
    assert readers.decode_points(curve, group, padded, out) is None and np.array_equal(out, array)


def test_none_at_all():
    out = np.zeros((0, 2, 4), np.uint64)
    assert readers.decode_points("bn254", "g1", b"", out) is None
    assert readers.encode_points("bn254", "g1", out) == b""


def test_the_generator_as_published():
    """BLS12-381, from the specification of the encoding: flags, order of coordinates, byte order."""
    out = np.empty((1, 2, 2, 6), np.uint64)
    raw = bytes.fromhex(
        "13e02b6052719f607dacd3a088274f65596bd0d09920b61ab5da61bbdc7f5049334cf11213945d57e5ac7d055d042b7e"
        "024aa2b2f08f0a91260805272dc51051c6e47ad4fa403b02b4510b647ae3d1770bac0326a805bbefd48056c8c121bdb8"
        "0606c4a02ea734cc32acd2b02bc28b99cb3e287e85a763af267492ab572e99ab3f370d275cec1da1aaa9075ff05f79be"
        "0ce5d527727d6e118cc9cdc6da2e351aadfd9baa8cbdd3a76d429a695160d12c923ac9cc3baca289e193548608b82801"
    )
    assert readers.decode_points("bls12_381", "g2", raw, out) is None
    group = points.g2("bls12_381")
    assert group.decode(out) == [group.generator]


def lies(curve, group):
    """Bytes of a point that lies, and what is said of it."""
    q, size = params.CURVES[curve].q, BYTES[curve]
    count = 2 if group == "g1" else 4
    good = some_points(curve, group, 1)[1]
    infinity = bytes([0x40]) + bytes(count * size - 1)

    def flagged(raw, flag):
        return bytes([raw[0] | flag]) + raw[1:]

    yield flagged(good, 0x80), "flag 0x80 is set"
    yield flagged(good, 0xC0), "flag 0x80 is set"
    yield flagged(infinity, 0x80), "flag 0x80 is set"
    yield flagged(good, 0x40), "the flag of infinity is set, and other bits"
    yield infinity[:-1] + b"\1", "the flag of infinity is set, and other bits"
    yield bytes([0x41]) + infinity[1:], "the flag of infinity is set, and other bits"
    yield bytes(count * size), "all coordinates are zero without the flag"
    if curve == "bls12_381":
        yield flagged(good, 0x20), "flag 0x20 is set"
        yield flagged(infinity, 0x20), "flag 0x20 is set"
    for i in range(count):
        for value in (q, q + 1, (1 << q.bit_length()) - 1):
            numbers = [1] * count
            numbers[i] = value
            yield in_file(curve, group, numbers), "a coordinate is not below q"


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("curve", CURVES)
def test_each_lie_is_named_and_found(curve, group):
    array, raw = some_points(curve, group, 2500)
    size = len(raw) // 2500
    out = np.empty_like(array)
    for lie, words in lies(curve, group):
        assert len(lie) == size
        for at in (0, 3, 1777, 2499):
            bad = raw[: at * size] + lie + raw[(at + 1) * size :]
            found = readers.decode_points(curve, group, bad, out)
            assert found is not None and found[0] == at and words in found[1], (lie.hex(), found)
        two = lie + raw[size : 2000 * size] + lie + raw[2001 * size :]
        assert readers.decode_points(curve, group, two, out)[0] == 0


def test_coordinates_are_not_flags():
    """q of bn254 has a bit where bls12_381 has the third flag."""
    q = params.CURVES["bn254"].q
    out = np.empty((1, 2, 4), np.uint64)
    assert readers.decode_points("bn254", "g1", in_file("bn254", "g1", [q - 1, 0]), out) is None
    assert limbs.from_montgomery(out, q) == [q - 1, 0]


@settings(max_examples=200, deadline=None)
@given(curve=st.sampled_from(CURVES), group=st.sampled_from(GROUPS), data=st.data())
def test_what_is_decoded_is_encoded_to_the_letter(curve, group, data):
    """Any bytes: bad, or the only encoding of what is read."""
    shape = point_shape(curve, group)
    size = 8 * int(np.prod(shape))
    raw = data.draw(st.binary(min_size=size, max_size=size))
    out = np.empty((1, *shape), np.uint64)
    if readers.decode_points(curve, group, raw, out) is None:
        assert readers.encode_points(curve, group, out) == raw


def test_lengths_that_do_not_fit():
    out = np.zeros((2, 2, 4), np.uint64)
    for raw in (b"", bytes(127), bytes(129), bytes(64)):
        with pytest.raises(ValueError, match=r"raw: expected shape \[128\]"):
            readers.decode_points("bn254", "g1", raw, out)
    with pytest.raises(ValueError, match="out: expected shape"):
        readers.decode_points("bls12_381", "g1", bytes(128), out)
    with pytest.raises(ValueError, match="group: expected 'g1' or 'g2'"):
        readers.encode_points("bn254", "g3", out)
