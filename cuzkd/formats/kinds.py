"""What a file is, by its content; and the keys and proofs in it, whatever their spelling.

Problem: names of files say little, and a verifying key comes in four formats, a proof in three.
Design: most begin with a magic, JSON with a bracket. bellman's files have no magic: one is taken for such when it
begins with a point of a curve that we know. So does a proof as bytes, which is told by its length, and by going on with
a point in G2 where a key has a second one in G1. What a file wants to be is decided here; whether it is a good one of
its kind, its reader says.
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import StrEnum
from typing import Any

from cuzkd.curves import params
from cuzkd.errors import CuzkdError, InvalidInput, MalformedFile
from cuzkd.formats import (
    affine,
    bellman,
    bellman_points,
    bellman_vk,
    compressed,
    names,
    proof_bytes,
    snarkjs,
    zkey,
)
from cuzkd.formats.files import RawFile
from cuzkd.groth16.keys import Proof, VerifyingKey

MAX_PROOF_BYTES = snarkjs.MAX_PROOF_BYTES  # more than any row of proofs that somebody takes for one


class Kind(StrEnum):
    """In words for people."""

    ZKEY = "proving key of snarkjs (.zkey)"
    WTNS = "witness (.wtns)"
    R1CS = "constraint system (.r1cs)"
    WASM = "witness calculator (.wasm)"
    PTAU = "powers of tau (.ptau)"
    JSON = "JSON"
    PROOFS = "proof bytes"
    VK = "verifying key of bellman (.vk)"
    PARAMS = "proving key of bellman (.params)"
    UNKNOWN = "unknown"


_MAGIC = {
    b"zkey": Kind.ZKEY,
    b"wtns": Kind.WTNS,
    b"r1cs": Kind.R1CS,
    b"\0asm": Kind.WASM,
    b"ptau": Kind.PTAU,
}


def kind_of(file: RawFile) -> Kind:
    """What it wants to be."""
    head = bytes(file.read(0, min(64, file.size)))
    if head[:4] in _MAGIC:
        return _MAGIC[head[:4]]
    if head.lstrip()[:1] in (b"{", b"["):
        return Kind.JSON
    curve = _begins_with_point(file, 0)
    if curve is None:
        return Kind.PROOFS if file.size in proof_bytes.LENGTHS.values() else Kind.UNKNOWN
    whole_proofs = file.size % proof_bytes.LENGTHS[curve] == 0
    if head[0] & compressed.COMPRESSED:  # a .vk is never as long as so many proofs
        return Kind.PROOFS if whole_proofs else Kind.VK
    second = bellman_points.point_bytes(curve, "g1")
    if curve != compressed.CURVE and whole_proofs and _begins_with_point(file, second) is None:
        return Kind.PROOFS
    with suppress(CuzkdError):
        if bellman_vk.read_head(file).nbytes == file.size:
            return Kind.VK
    return Kind.PARAMS


def kind_of_path(path: str | os.PathLike[str]) -> Kind:
    """kind_of a file by name. Raises InvalidInput, MalformedFile where it cannot be read."""
    return kind_of(RawFile(path))


def json_kind(record: Any) -> str:
    """What a JSON document of snarkjs wants to be, in words; "" for what is none of its."""
    if isinstance(record, list):
        return "public values"
    known = {"pi_a": "a proof", "vk_alpha_1": "a verification key"}
    return next((word for name, word in known.items() if isinstance(record, dict) and name in record), "")


def _require_json(record: Any, wanted: str, path: str | os.PathLike[str]) -> None:
    if (found := json_kind(record)) and found != wanted:
        raise InvalidInput(f"{path}: expected {wanted}, found {found}")


def _begins_with_point(file: RawFile, at: int) -> str | None:
    """The curve in whose G1 the bytes at `at` are a point, as bellman writes one."""
    for curve in params.CURVES:
        size = bellman_points.point_bytes(curve, "g1")
        if file.size >= at + size:
            point = bellman_points.single(file.read(at, size), curve, "g1")
            if not isinstance(point, str):
                return curve
    if file.size >= at + compressed.G1_BYTES:
        with suppress(compressed.BadPoint):
            if compressed.decode_g1(bytes(file.read(at, compressed.G1_BYTES))) is not None:
                return compressed.CURVE
    return None


# -- keys ----------------------------------------------------------------------------------------------------


def read_vkey(path: str | os.PathLike[str]) -> VerifyingKey:
    """The verifying key in a .zkey, .params, .vk or verification_key.json. Raises what their readers raise, and
    InvalidInput for a file of another kind.
    """
    file = RawFile(path)
    kind = kind_of(file)
    if kind is Kind.ZKEY:
        return zkey.open(path).vk
    if kind is Kind.PARAMS:
        return bellman.read_params_head(path).vk
    if kind is Kind.VK:
        return bellman_vk.read_vk(path)
    if kind is Kind.JSON:
        text, record = snarkjs.load(path)
        _require_json(record, "a verification key", path)
        return snarkjs.vkey_from_json(text, str(path))
    raise InvalidInput(f"{path}: expected a verification key, or a key that holds one, found {article(kind)}")


def vk_bytes(path: str | os.PathLike[str]) -> bytes:
    """The verifying key of a .zkey, .params or .vk as the bytes of a .vk. Raises as read_vkey, and InvalidInput for
    one of snarkjs, which lacks two points that bellman's has.
    """
    file = RawFile(path)
    kind = kind_of(file)
    if kind is Kind.ZKEY:
        return bellman_vk.encode_head(path, zkey.open(path))
    if kind in (Kind.VK, Kind.PARAMS):
        return bytes(file.read(0, bellman_vk.read_head(file).nbytes))
    raise InvalidInput(
        f"{path}: expected a .zkey, .params or .vk: a .vk holds beta_g1 and delta_g1; found {article(kind)}"
    )


# -- proofs --------------------------------------------------------------------------------------------------


def read_proof(path: str | os.PathLike[str], curve: str | None = None) -> Proof:
    """One proof, JSON of snarkjs or rapidsnark, or bytes. curve: which it must be over; None: what the file says, or
    its points. Raises what the readers raise, and InvalidInput for a file of another kind.
    """
    file = RawFile(path)
    kind = kind_of(file)
    if kind is Kind.JSON:
        text, record = snarkjs.load(path, MAX_PROOF_BYTES)
        _require_json(record, "a proof", path)
        return snarkjs.proof_from_json(text, str(path), curve or json_curve(text, record, str(path)))
    if kind is not Kind.PROOFS:
        raise InvalidInput(f"{path}: expected a proof, found {article(kind)}")
    return proof_bytes.decode(
        curve or bytes_curve(file), bytes(file.read(0, min(file.size, MAX_PROOF_BYTES))), str(path)
    )


def read_publics(path: str | os.PathLike[str], curve: str) -> list[int]:
    """Public values, JSON of snarkjs. Raises as read_proof."""
    if (kind := kind_of_path(path)) not in (Kind.JSON, Kind.UNKNOWN):
        raise InvalidInput(f"{path}: expected public values, found {article(kind)}")
    text, record = snarkjs.load(path)
    _require_json(record, "public values", path)
    return snarkjs.publics_from_json(text, str(path), curve)


def bytes_curve(file: RawFile) -> str:
    """The curve of proofs as bytes, by their first point, or by their length where that is none."""
    by_length = (curve for curve, length in proof_bytes.LENGTHS.items() if file.size % length == 0)
    return _begins_with_point(file, 0) or next(by_length)


def json_curve(text: bytes, record: Any, where: str) -> str:
    """The curve that a proof names, or the one on which its first point lies."""
    named = record.get("curve") if isinstance(record, dict) else None
    if isinstance(named, str) and (curve := names.by_spelling(named)):
        return curve
    for curve in params.CURVES:
        with suppress(MalformedFile):
            proof = snarkjs.proof_from_json(text, where, curve)
            if affine.g1_problem(curve, affine.g1_from_array(curve, proof.a)) is None:
                return curve
    return next(iter(params.CURVES))


def article(kind: Kind) -> str:
    """In words for a sentence."""
    return {Kind.UNKNOWN: "nothing that cuzkd knows", Kind.JSON: "JSON"}.get(kind, f"a {kind}")
