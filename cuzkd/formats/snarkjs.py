"""The JSON of snarkjs: proof.json, public.json, verification_key.json.

Numbers are decimal strings. G1 is [x, y, "1"], G2 [[x.c0, x.c1], [y.c0, y.c1], ["1", "0"]], infinity
(0 : 1 : 0). Text has an indent of one space and no newline at its end; an empty public.json is "[\\n]". The
curve is "bn128" or "bls12381"; rapidsnark writes compact text and leaves the curve out of a proof, so whoever
reads one names it.
Problem: elsewhere a number that is not reduced passes, or passes in one tool and fails in the next.
Design: exact shapes, exact digits, every coordinate below q, every public value below r. Points are checked
against the curve by the verifier, not here. The ..._from_json functions take text and `where` (a name for
messages); read_... take a path. How large a text may be is bounded for files, how much it
may hold for all.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cuzkd.backend.protocol import U64
from cuzkd.curves import params
from cuzkd.errors import MalformedFile
from cuzkd.formats import affine, json_depth, names
from cuzkd.formats.affine import G1, G2, Fq2
from cuzkd.formats.files import RawFile
from cuzkd.groth16.keys import Proof, VerifyingKey

_DECIMAL = re.compile(r"0|[1-9][0-9]{0,127}", re.ASCII)
# What a text costs once it is parsed is bounded by these two: about 0.5 GiB. A key with 200,000 public values has 37 MB
# (BN254) to 52 MB (BLS12-381), and 800,000 values.
MAX_BYTES = 64 << 20
MAX_VALUES = 1 << 21
MAX_PROOF_BYTES = 1 << 20
MAX_DEPTH = 16  # a verification key needs four
# Final exponentiations differ by a power that changes no equation between pairings. ffjavascript's value is the
# reduced pairing to this power of the curve's parameter x (found on snarkjs's exports, which the tests hold).
_FFJAVASCRIPT_POWER: dict[str, Callable[[int], int]] = {
    "bn254": lambda x: 2 * x * (6 * x * x + 3 * x + 1),
    "bls12_381": lambda x: -3,
}
_G1_INFINITY = ["0", "1", "0"]
_G2_INFINITY = [["0", "0"], ["1", "0"], ["0", "0"]]


def proof_to_json(proof: Proof) -> str:
    """proof.json as snarkjs writes it."""
    record = {
        "pi_a": _g1_out(proof.curve, proof.a),
        "pi_b": _g2_out(proof.curve, proof.b),
        "pi_c": _g1_out(proof.curve, proof.c),
        "protocol": "groth16",
        "curve": names.IN_FILES[proof.curve],
    }
    return _dump(record)


def proof_from_json(text: str | bytes, where: str, curve: str) -> Proof:
    """A proof over `curve`. A file that names another curve or protocol is refused; one that names none is
    not.
    """
    record = _object(text, where, {"pi_a", "pi_b", "pi_c"})
    _require_groth16(record, where)
    if "curve" in record and (found := _curve(record["curve"], where)) != curve:
        raise MalformedFile(f"{where}: expected a proof over {curve}, found one over {found}")
    return Proof(
        curve,
        _g1_in(curve, record["pi_a"], f"{where}: pi_a"),
        _g2_in(curve, record["pi_b"], f"{where}: pi_b"),
        _g1_in(curve, record["pi_c"], f"{where}: pi_c"),
    )


def publics_to_json(publics: Sequence[int]) -> str:
    """public.json: the public values, outputs first, without the constant."""
    return _dump([str(int(value)) for value in publics]) if publics else "[\n]"


def publics_from_json(text: str | bytes, where: str, curve: str) -> list[int]:
    """Public values, each in [0, r). Raises MalformedFile, naming the first that is not."""
    values = _load(text, where)
    if not isinstance(values, list):
        raise MalformedFile(f"{where}: expected an array of decimal strings, found {_kind(values)}")
    r = params.CURVES[curve].r
    return [_number(value, r, f"{where}: value {i}", f"r of {curve}") for i, value in enumerate(values)]


def vkey_to_json(vk: VerifyingKey, *, with_pairing: bool = False) -> str:
    """verification_key.json. with_pairing: also vk_alphabeta_12, for which native code is loaded.

    snarkjs's own export holds that value; no verifier needs it (snarkjs, too, computes it again).
    """
    record: dict[str, Any] = {
        "protocol": "groth16",
        "curve": names.IN_FILES[vk.curve],
        "nPublic": len(vk.ic) - 1,
        "vk_alpha_1": _g1_out(vk.curve, vk.alpha_g1),
        "vk_beta_2": _g2_out(vk.curve, vk.beta_g2),
        "vk_gamma_2": _g2_out(vk.curve, vk.gamma_g2),
        "vk_delta_2": _g2_out(vk.curve, vk.delta_g2),
    }
    if with_pairing:
        record["vk_alphabeta_12"] = _alphabeta(vk)
    record["IC"] = [_g1_out(vk.curve, point) for point in vk.ic]
    return _dump(record)


def vkey_from_json(text: str | bytes, where: str) -> VerifyingKey:
    """A verification key. vk_alphabeta_12 is not read: it follows from the rest. Raises MalformedFile."""
    points = {"vk_alpha_1", "vk_beta_2", "vk_gamma_2", "vk_delta_2"}
    record = _object(text, where, {"protocol", "curve", "nPublic", "IC"} | points)
    _require_groth16(record, where)
    curve = _curve(record["curve"], where)
    n_public, ic = record["nPublic"], record["IC"]
    if type(n_public) is not int or not isinstance(ic, list) or not ic or len(ic) != n_public + 1:
        found = len(ic) if isinstance(ic, list) else _kind(ic)
        raise MalformedFile(
            f"{where}: IC: expected nPublic + 1 points (nPublic is {n_public!r:.40}), found {found}"
        )
    return VerifyingKey(
        curve=curve,
        alpha_g1=_g1_in(curve, record["vk_alpha_1"], f"{where}: vk_alpha_1"),
        beta_g2=_g2_in(curve, record["vk_beta_2"], f"{where}: vk_beta_2"),
        gamma_g2=_g2_in(curve, record["vk_gamma_2"], f"{where}: vk_gamma_2"),
        delta_g2=_g2_in(curve, record["vk_delta_2"], f"{where}: vk_delta_2"),
        ic=np.stack([_g1_in(curve, point, f"{where}: IC[{i}]") for i, point in enumerate(ic)]),
    )


def read_proof(path: str | os.PathLike[str], curve: str) -> Proof:
    """proof_from_json of a file."""
    return proof_from_json(_text(path, MAX_PROOF_BYTES), str(path), curve)


def read_publics(path: str | os.PathLike[str], curve: str) -> list[int]:
    """publics_from_json of a file."""
    return publics_from_json(_text(path), str(path), curve)


def read_vkey(path: str | os.PathLike[str]) -> VerifyingKey:
    """vkey_from_json of a file."""
    return vkey_from_json(_text(path), str(path))


def load(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> tuple[bytes, Any]:
    """The text of a file of JSON, and what it holds, whatever that is. Raises MalformedFile, InvalidInput."""
    text = _text(path, max_bytes)
    return text, _load(text, str(path))


def _text(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> bytes:
    file = RawFile(path)
    if file.size > max_bytes:
        raise MalformedFile(f"{path}: expected at most {max_bytes} bytes of JSON, found {file.size}")
    return bytes(file.read(0, file.size))


def _dump(value: Any) -> str:
    return json.dumps(value, indent=1)


def _load(text: str | bytes, where: str) -> Any:
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        if (n := json_depth.most_values(text)) > MAX_VALUES:
            raise MalformedFile(
                f"{where}: is not JSON of ours: expected at most {MAX_VALUES} values, found {n}"
            )
        if json_depth.is_deeper(text, MAX_DEPTH):
            raise MalformedFile(f"{where}: is not JSON of ours: nested deeper than {MAX_DEPTH}")
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise MalformedFile(f"{where}: is not JSON: {error}") from error
    except ValueError:  # Python's message is advice for programmers
        raise MalformedFile(f"{where}: is not JSON of ours: a number has too many digits") from None


def _kind(value: Any) -> str:
    return {dict: "an object", list: "an array", str: "a string", type(None): "null"}.get(
        type(value), "a number"
    )


def _object(text: str | bytes, where: str, wanted: set[str]) -> dict[str, Any]:
    record = _load(text, where)
    if not isinstance(record, dict):
        raise MalformedFile(f"{where}: expected an object, found {_kind(record)}")
    if missing := wanted - record.keys():
        raise MalformedFile(f"{where}: missing: {', '.join(sorted(missing))}")
    return record


def _require_groth16(record: dict[str, Any], where: str) -> None:
    if (found := record.get("protocol", "groth16")) != "groth16":
        raise MalformedFile(f"{where}: expected protocol 'groth16', found {found!r:.40}")


def _curve(spelling: Any, where: str) -> str:
    curve = names.by_spelling(spelling) if isinstance(spelling, str) else None
    if curve is None:
        raise MalformedFile(f"{where}: curve: expected {names.KNOWN}, found {spelling!r:.40}")
    return curve


def _number(value: Any, limit: int, where: str, limit_name: str) -> int:
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
        raise MalformedFile(f"{where}: expected a decimal string, found {_kind(value)}")
    if (number := int(value)) >= limit:
        raise MalformedFile(f"{where}: is not below {limit_name}")
    return number


def _shape(value: Any, n: int, where: str) -> list[Any]:
    if not isinstance(value, list) or len(value) != n:
        found = f"{len(value)}" if isinstance(value, list) else _kind(value)
        raise MalformedFile(f"{where}: expected an array of {n}, found {found}")
    return value


def _fq_in(curve: str, value: Any, where: str) -> int:
    return _number(value, params.CURVES[curve].q, where, f"q of {curve}")


def _fq2_in(curve: str, value: Any, where: str) -> Fq2:
    c0, c1 = (_fq_in(curve, c, where) for c in _shape(value, 2, where))
    return c0, c1


def _g1_in(curve: str, value: Any, where: str) -> U64:
    point: G1 = None
    if _shape(value, 3, where) != _G1_INFINITY:
        x, y, z = (_fq_in(curve, c, where) for c in value)
        if z != 1 or (x, y) == (0, 0):
            raise MalformedFile(
                f'{where}: expected an affine point [x, y, "1"], or ["0", "1", "0"] for infinity'
            )
        point = (x, y)
    return affine.g1_to_array(curve, point)


def _g2_in(curve: str, value: Any, where: str) -> U64:
    point: G2 = None
    if _shape(value, 3, where) != _G2_INFINITY:
        x, y, z = (_fq2_in(curve, c, where) for c in value)
        if z != (1, 0) or (x, y) == ((0, 0), (0, 0)):
            raise MalformedFile(f'{where}: expected an affine point with z = ["1", "0"], or infinity')
        point = (x, y)
    return affine.g2_to_array(curve, point)


def _g1_out(curve: str, array: U64) -> list[str]:
    point = affine.g1_from_array(curve, array)
    return _G1_INFINITY if point is None else [str(point[0]), str(point[1]), "1"]


def _g2_out(curve: str, array: U64) -> list[list[str]]:
    point = affine.g2_from_array(curve, array)
    return _G2_INFINITY if point is None else [*([str(c) for c in pair] for pair in point), ["1", "0"]]


def _alphabeta(vk: VerifyingKey) -> list[list[list[str]]]:
    """e(alpha, beta) as ffjavascript computes it, Fq6 by Fq6, each of three Fq2."""
    from cuzkd.backend import cpu  # native: a client that only reads and writes proofs does without

    c = params.CURVES[vk.curve]
    k = _FFJAVASCRIPT_POWER[vk.curve](c.x) % c.r
    scalar = np.frombuffer(k.to_bytes(32, "little"), dtype="<u8").reshape(1, 4)
    alpha = cpu.CpuBackend().scalar_mul(vk.curve, "g1", np.ascontiguousarray(vk.alpha_g1)[None], scalar)[0]
    coefficients = cpu.pairing(vk.curve, alpha, np.ascontiguousarray(vk.beta_g2))
    # Coefficients of 1, w, ..., w^11 over Fq. w^6 = xi0 + u, so c_j w^j + c_(j+6) w^(j+6) is
    # (c_j + xi0 c_(j+6) + c_(j+6) u) w^j; w^2 = v tells even from odd j.
    flat = [int.from_bytes(row.astype("<u8").tobytes(), "little") for row in coefficients]
    fq2 = [[str((flat[j] + c.xi[0] * flat[j + 6]) % c.q), str(flat[j + 6])] for j in range(6)]
    return [fq2[0::2], fq2[1::2]]
