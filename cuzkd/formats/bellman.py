"""The .params file: a Groth16 proving key as bellman, bellperson and Zcash's ceremony make it.

    verifying key (bellman_vk.py)
    h [domain - 1]        [tau^i Z(tau)/delta]_1: "bellman" reduction
    l [private wires]
    a [wires dense in A]  b1, b2 [wires dense in B], b2 in G2
    anything              nothing, or the transcript of a ceremony

Lists as in `bellman_points.py`. There is no magic, no digest, no name of a circuit, and no index: a and b leave out
each wire whose polynomial is zero, and only the constraint system says which these are. A wire is dense in A or B when
a row has it with a non-zero coefficient, duplicates within a row being merged (`formats.r1cs` does so); the appended
rows make all inputs dense in A. snarkjs's `zkey export bellman` writes the same lists with every wire in them, infinity
as zeros; this is read, too, and told apart by its counts.

A transcript is 64 bytes of hash, u32 k, and k times {delta_after G1, s G1, s_delta G1, r_delta G2, 64 bytes}: the last
delta_after is the key's delta_g1, or the key is not the one that the ceremony made.

Problem: a key that does not fit its circuit proves nothing, and nothing in it says so.
Design: all counts are compared with the file's length, then with those of the constraint system, before a point is
read. Whether the points fit the matrices under the roots of unity that were assumed, circuits.checks looks at.
Life of data: points come in blocks, by `pread`, decoded natively and spread over all wires; nothing is mapped, and no
more than a block is held.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from cuzkd.backend import readers
from cuzkd.backend.protocol import U64, KeyShape, SparseMatrix
from cuzkd.errors import InvalidKey, MalformedFile
from cuzkd.formats import bellman_vk
from cuzkd.formats.bellman_points import (
    AT_INFINITY,
    BLOCK_POINTS,
    COUNT,
    PointList,
    empty,
    first_true,
    infinite,
    point_bytes,
)
from cuzkd.formats.files import RawFile, written_whole
from cuzkd.groth16.constraints import Constraints
from cuzkd.groth16.keys import ProvingKey, StreamedKey, VerifyingKey

LISTS = {"h": "g1", "l": "g1", "a": "g1", "b1": "g1", "b2": "g2"}  # name: group, in the order of the file
QUERIES = {"h": "h_g1", "l": "l_g1", "a": "a_g1", "b1": "b_g1", "b2": "b_g2"}
OF_WIRES = ("l", "a", "b1", "b2")
ROOT_FAMILIES = {"bls12_381": 7, "bn254": 5}
SNARKJS_ROOT_FAMILY = 5
HASH_BYTES = 64

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class ParamsHead:
    """What a .params file says without its constraint system.

    counts: points by list (h, l, a, b1, b2). trailing_bytes: how many follow the last list. transcript: the number of
    contributions, where these bytes are the transcript of a ceremony, else None.
    """

    curve: str
    vk: VerifyingKey
    beta_g1: U64
    delta_g1: U64
    counts: Mapping[str, int]
    trailing_bytes: int
    transcript: int | None


def read_params_head(path: str | os.PathLike[str], curve: str | None = None) -> ParamsHead:
    """All but the points of the lists. curve None: the one that the first point lies on.

    Raises MalformedFile; InvalidKey where a transcript names another delta.
    """
    return _open(path, curve)[0]


def open_params(
    path: str | os.PathLike[str], constraints: Constraints, root_family: int | None = None
) -> StreamedKey:
    """A key whose points come in blocks, spread over the wires of `constraints`.

    root_family: the file does not say it. Unless given, 7 on BLS12-381 and 5 on BN254, but 5 on both where the lists
    have every wire: these are snarkjs's. Raises MalformedFile for a file that is cut or contradicts itself, InvalidKey
    for one of another circuit.
    """
    head, lists = _open(path, None)
    curve = constraints.curve
    if head.curve != curve:
        raise InvalidKey(f"{path}: expected a key over {curve}, as the constraints are, found {head.curve}")
    held = _held(constraints)
    whole = _fit(path, head, constraints, held)
    shape = KeyShape(
        curve=curve,
        root_family=root_family or (SNARKJS_ROOT_FAMILY if whole else ROOT_FAMILIES[curve]),
        reduction="bellman",
        log_domain=constraints.log_domain("bellman"),
        n_wires=constraints.n_wires,
        n_public=constraints.n_public,
        n_rows=constraints.n_rows,
    )
    queries = {
        QUERIES[name]: partial(_every, lists[name], held[name])
        if name in whole
        else partial(_spread, lists[name], held[name])
        for name in LISTS
    }
    return StreamedKey(head.vk, head.beta_g1, head.delta_g1, shape, constraints, queries)


def write_params(
    path: str | os.PathLike[str],
    key: ProvingKey | StreamedKey,
    *,
    every_wire: bool = False,
    trailing: bytes = b"",
) -> None:
    """Write a key as bellman reads it, or with every_wire as `snarkjs zkey export bellman` does.

    trailing: what follows the lists, a transcript perhaps. Raises InvalidKey for a key of another reduction or domain,
    or with infinity where the format has no place for it: in l, that is a private wire that no constraint has.
    """
    shape = key.arrays
    if shape.reduction != "bellman" or shape.log_domain != key.constraints.log_domain("bellman"):
        raise InvalidKey(
            f"{path}: a .params file holds keys of the bellman reduction on the smallest domain, "
            f"2^{key.constraints.log_domain('bellman')}, not of {shape.reduction} on 2^{shape.log_domain}"
        )
    held = _held(key.constraints)
    head = bellman_vk.encode_head(path, key)
    with written_whole(path) as out:
        out.write(head)
        for name in LISTS:
            _write_list(out, path, key, name, held[name], every_wire and name in OF_WIRES)
        out.write(trailing)


def _open(path: str | os.PathLike[str], curve: str | None) -> tuple[ParamsHead, dict[str, PointList]]:
    file = RawFile(path)
    vk = bellman_vk.read_head(file, curve)
    at, lists = vk.nbytes, {}
    for name, group in LISTS.items():
        lists[name] = PointList.at(file, at, name, vk.vk.curve, group)
        at = lists[name].end
    counts = {name: points.n for name, points in lists.items()}
    if counts["b1"] != counts["b2"]:
        raise MalformedFile(f"{path}: b2: expected {counts['b1']} points, as in b1, found {counts['b2']}")
    transcript = _transcript(file, at, vk)
    return ParamsHead(vk.vk.curve, vk.vk, vk.beta_g1, vk.delta_g1, counts, file.size - at, transcript), lists


def _transcript(file: RawFile, at: int, vk: bellman_vk.VkHead) -> int | None:
    """The number of contributions, if what follows byte `at` has just the length of so many."""
    curve = vk.vk.curve
    contribution = 3 * point_bytes(curve, "g1") + point_bytes(curve, "g2") + HASH_BYTES
    begin = at + HASH_BYTES + COUNT.size
    if file.size < begin:
        return None
    (n,) = COUNT.unpack(file.read(at + HASH_BYTES, COUNT.size))
    if file.size != begin + n * contribution:
        return None
    if n and file.read(begin + (n - 1) * contribution, len(vk.delta_bytes)) != vk.delta_bytes:
        raise InvalidKey(
            f"{file.path}: transcript: the last of {n} contributions made another delta_g1 than the verifying key has"
        )
    return int(n)


def _held(constraints: Constraints) -> dict[str, Mask]:
    """For each list: at which places of KeyArrays bellman has a point."""
    a, b = _dense(constraints.a), _dense(constraints.b)
    h = np.ones(1 << constraints.log_domain("bellman"), np.bool_)
    h[-1] = False
    return {
        "h": h,
        "l": np.ones(constraints.n_wires - constraints.n_public - 1, np.bool_),
        "a": a,
        "b1": b,
        "b2": b,
    }


def _dense(matrix: SparseMatrix) -> Mask:
    """The wires that a matrix has with a non-zero coefficient."""
    dense = np.zeros(matrix.n_cols, np.bool_)
    is_zero = np.logical_not(matrix.table.any(axis=1))
    dense[matrix.cols[~is_zero[matrix.coeff]] if is_zero.any() else matrix.cols] = True
    return dense


def _fit(
    path: str | os.PathLike[str], head: ParamsHead, constraints: Constraints, held: Mapping[str, Mask]
) -> tuple[str, ...]:
    """The lists that have a point for every wire: none, or OF_WIRES. InvalidKey unless all counts fit."""
    n_wires, n_public = constraints.n_wires, constraints.n_public
    n = {name: int(np.count_nonzero(mask)) for name, mask in held.items()}
    every_wire = head.counts["a"] == head.counts["b1"] == n_wires and min(n["a"], n["b1"]) < n_wires
    if every_wire:
        n |= dict.fromkeys(("a", "b1", "b2"), n_wires)
    here = "the constraint system has"
    for name, expected, why in (
        ("ic", n_public + 1, f"{here} the constant and {n_public} public wires"),
        ("h", n["h"], f"{here} {constraints.n_rows} rows, and so a domain of {n['h'] + 1}, less one"),
        ("l", n["l"], f"{here} so many private wires"),
        ("a", n["a"], f"{here} so many of its {n_wires} wires in A"),
        ("b1", n["b1"], f"{here} so many of its {n_wires} wires in B"),
    ):
        found = len(head.vk.ic) if name == "ic" else head.counts[name]
        if found != expected:
            raise InvalidKey(f"{path}: {name}: expected {expected} points ({why}), found {found}")
    return OF_WIRES if every_wire else ()


def _spread(points: PointList, held: Mask) -> Iterator[U64]:
    """The points of a list at the places that hold one, infinity at the others."""
    first = 0
    for begin in range(0, len(held), BLOCK_POINTS):
        here = held[begin : begin + BLOCK_POINTS]
        found = points.read(first, int(np.count_nonzero(here)))
        block = empty(points.curve, points.group, len(here))
        block[here] = found
        block[~here] = 0
        first += len(found)
        yield block


def _every(points: PointList, held: Mask) -> Iterator[U64]:
    """The points of a list that has a place for each. In a, b1, b2, infinity must be where bellman has no point; in l
    it is a wire that no constraint has.
    """
    for begin in range(0, points.n, BLOCK_POINTS):
        block = points.read_places(begin, min(BLOCK_POINTS, points.n - begin))
        finite = ~infinite(block)
        if (i := first_true(finite != held[begin : begin + len(block)])) >= 0 and points.name != "l":
            words = _misplaced(points.name, begin + i, bool(finite[i]))
            raise InvalidKey(f"{points.file.path}: {points.name}: {words}")
        yield block


def _write_list(
    out: BinaryIO,
    path: str | os.PathLike[str],
    key: ProvingKey | StreamedKey,
    name: str,
    held: Mask,
    whole: bool,
) -> None:
    curve, group = key.vk.curve, LISTS[name]
    out.write(COUNT.pack(len(held) if whole else int(np.count_nonzero(held))))
    begin = 0
    for points in _parts(key.blocks(QUERIES[name])):
        finite = ~infinite(points)
        if (i := first_true(finite != held[begin : begin + len(points)])) >= 0 and not (
            whole and name == "l"
        ):
            raise InvalidKey(f"{path}: {name}: {_misplaced(name, begin + i, bool(finite[i]))}")
        data = readers.encode_points(curve, group, np.ascontiguousarray(points[finite]))
        if whole:  # infinity as zeros
            places = np.zeros((len(points), point_bytes(curve, group)), np.uint8)
            places[finite] = np.frombuffer(data, np.uint8).reshape(-1, places.shape[1])
            data = places.tobytes()
        out.write(data)
        begin += len(points)


def _parts(blocks: Iterator[U64]) -> Iterator[U64]:
    """Blocks in parts of at most BLOCK_POINTS: a key in memory is one block."""
    for block in blocks:
        for begin in range(0, len(block), BLOCK_POINTS):
            yield block[begin : begin + BLOCK_POINTS]


def _misplaced(name: str, place: int, finite: bool) -> str:
    """Words for a point of a key that is where the format has none, or the other way round."""
    if name == "h":
        return f"power {place} of tau: expected {'infinity, as it is the last' if finite else 'a point'}"
    if name == "l":
        return f"private wire {place}: {AT_INFINITY}: bellman refuses a wire that no constraint has"
    if finite:
        return f"wire {place}: expected infinity, as no row has this wire"
    return f"wire {place}: expected a point, as rows have this wire"
