"""The verifying key of bellman and bellperson: a .vk file, and the beginning of each .params file.

    alpha_g1 | beta_g1 | beta_g2 | gamma_g2 | delta_g1 | delta_g2 | u32 n | ic[n]

Points as in `bellman_points.py`, none of them infinity; n counts the constant, too. There is no magic and no name of a
curve: the curve is the one that alpha_g1 lies on. Some projects (polka-storage) write a .vk with all its points
compressed; on BLS12-381 that is read, too.

The six single points are checked against their curves here, which is how the curve is known at all; ic is by whoever
uses it (the verifier, or `circuits.checks`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cuzkd.backend import readers
from cuzkd.backend.protocol import U64
from cuzkd.curves import params
from cuzkd.errors import InvalidKey, MalformedFile
from cuzkd.formats import affine, compressed
from cuzkd.formats.bellman_points import (
    AT_INFINITY,
    COUNT,
    PointList,
    cut,
    first_true,
    infinite,
    point_bytes,
    read_count,
    single,
)
from cuzkd.formats.files import RawFile, written_whole
from cuzkd.groth16.keys import KeyHead, VerifyingKey

FIELDS = (
    ("alpha_g1", "g1"), ("beta_g1", "g1"), ("beta_g2", "g2"),
    ("gamma_g2", "g2"), ("delta_g1", "g1"), ("delta_g2", "g2"),
)  # fmt: skip


@dataclass(frozen=True)
class VkHead:
    """What the layout above holds. nbytes: its length. delta_bytes: delta_g1 as the file spells it."""

    vk: VerifyingKey
    beta_g1: U64
    delta_g1: U64
    nbytes: int
    delta_bytes: bytes


def read_vk(path: str | os.PathLike[str], curve: str | None = None) -> VerifyingKey:
    """A .vk file, uncompressed or compressed. curve None: the one that its first point lies on.

    Raises MalformedFile, naming the point and what is wrong with it, and for bytes after the last one.
    """
    file = RawFile(path)
    if file.read(0, 1)[0] & compressed.COMPRESSED and curve in (None, compressed.CURVE):
        head = _read_compressed(file)
    else:
        head = read_head(file, curve)
    if file.size != head.nbytes:
        raise MalformedFile(
            f"{path}: expected {head.nbytes} bytes ({len(head.vk.ic)} points in ic), found {file.size}"
        )
    return head.vk


def write_vk(path: str | os.PathLike[str], key: KeyHead) -> None:
    """Write the uncompressed form. Raises InvalidKey for a point at infinity, which readers of the format refuse."""
    data = encode_head(path, key)
    with written_whole(path) as out:
        out.write(data)


def encode_head(path: str | os.PathLike[str], key: KeyHead) -> bytes:
    """The bytes of the layout above. path: for messages. Raises InvalidKey for a point at infinity."""
    vk = key.vk
    points = (vk.alpha_g1, key.beta_g1, vk.beta_g2, vk.gamma_g2, key.delta_g1, vk.delta_g2)
    pieces = []
    for (name, group), point in zip(FIELDS, points, strict=True):
        if not point.any():
            raise InvalidKey(f"{path}: {name} {AT_INFINITY}")
        pieces.append(readers.encode_points(vk.curve, group, point[None]))
    if (i := first_true(infinite(vk.ic))) >= 0:
        raise InvalidKey(f"{path}: ic: point {i} of {len(vk.ic)} {AT_INFINITY}")
    return b"".join([*pieces, COUNT.pack(len(vk.ic)), readers.encode_points(vk.curve, "g1", vk.ic)])


def read_head(file: RawFile, curve: str | None = None) -> VkHead:
    """The layout above, from the beginning of a file. Raises MalformedFile."""
    name = curve or _detect(file)

    def decode(raw: memoryview, group: str) -> U64 | str:
        return single(raw, name, group)

    points, at, delta_bytes = _six_points(file, lambda group: point_bytes(name, group), decode)
    ic = PointList.at(file, at, "ic", name, "g1")
    _require_one(file, ic.n)
    return _head(name, points, ic.load(), ic.end, delta_bytes)


def _read_compressed(file: RawFile) -> VkHead:
    size = {"g1": compressed.G1_BYTES, "g2": compressed.G2_BYTES}
    points, at, delta_bytes = _six_points(file, lambda group: size[group], _decompress)
    n = read_count(file, at, "ic", size["g1"])
    _require_one(file, n)
    ic = []
    for i in range(n):
        point = _decompress(file.read(at + COUNT.size + i * size["g1"], size["g1"]), "g1")
        if isinstance(point, str):
            raise MalformedFile(f"{file.path}: ic: point {i} of {n}: {point}")
        ic.append(point)
    return _head(compressed.CURVE, points, np.stack(ic), at + COUNT.size + n * size["g1"], delta_bytes)


def _head(curve: str, points: dict[str, U64], ic: U64, nbytes: int, delta_bytes: bytes) -> VkHead:
    vk = VerifyingKey(
        curve, points["alpha_g1"], points["beta_g2"], points["gamma_g2"], points["delta_g2"], ic
    )
    return VkHead(vk, points["beta_g1"], points["delta_g1"], nbytes, delta_bytes)


def _six_points(
    file: RawFile, size: Callable[[str], int], decode: Callable[[memoryview, str], U64 | str]
) -> tuple[dict[str, U64], int, bytes]:
    """The points of FIELDS by name, where they end, and the bytes of delta_g1."""
    at, delta_bytes, points = 0, b"", {}
    for name, group in FIELDS:
        raw = cut(file, at, size(group), name)
        point = decode(raw, group)
        if isinstance(point, str):
            raise MalformedFile(f"{file.path}: {name}: {point}")
        points[name] = point
        at += len(raw)
        if name == "delta_g1":
            delta_bytes = bytes(raw)
    return points, at, delta_bytes


def _require_one(file: RawFile, n_ic: int) -> None:
    if n_ic == 0:
        raise MalformedFile(f"{file.path}: ic: expected at least the point of the constant wire, found none")


def _detect(file: RawFile) -> str:
    """The curve that alpha_g1 lies on."""
    problems = []
    for curve in params.CURVES:
        point = single(cut(file, 0, point_bytes(curve, "g1"), f"alpha_g1 on {curve}"), curve, "g1")
        if not isinstance(point, str):
            return curve
        problems.append(f"as one of {curve}: {point}")
    raise MalformedFile(
        f"{file.path}: alpha_g1: expected an uncompressed point of {' or '.join(params.CURVES)}; "
        + "; ".join(problems)
    )


def _decompress(raw: memoryview, group: str) -> U64 | str:
    """A compressed point, finite and on its curve, or what is wrong with it."""
    curve = compressed.CURVE
    try:
        if group == "g1":
            point = affine.g1_to_array(curve, compressed.decode_g1(bytes(raw)))
        else:
            point = affine.g2_to_array(curve, compressed.decode_g2(bytes(raw)))
    except compressed.BadPoint as problem:
        return str(problem)
    return point if point.any() else AT_INFINITY
