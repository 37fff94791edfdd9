"""`cuzkd inspect`: what a file is, whatever its name, and what is in it.

Problem: people have files whose names say little and whose content may be cut, altered, or of another tool; a prover's
"invalid key" does not help them.
Design: content tells what a file wants to be (formats/kinds.py). Then what can be seen is noted without trust, and the
format's reader goes over it: its error ends the inspection, and what was noted stands. Nothing is allocated by a number
that a file gives, nothing is mapped, and of witnesses and inputs no value is shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cuzkd.circuits import inputs
from cuzkd.circuits import inspection_bellman as bellmans
from cuzkd.circuits import inspection_circom as circoms
from cuzkd.circuits import manifest as manifests
from cuzkd.circuits.findings import Findings
from cuzkd.circuits.registry import KEY, MANIFEST
from cuzkd.curves import params
from cuzkd.errors import CuzkdError, InvalidInput, InvalidKey, MalformedFile
from cuzkd.formats import affine, proof_bytes, snarkjs
from cuzkd.formats.files import RawFile
from cuzkd.formats.kinds import Kind, bytes_curve, json_curve, kind_of
from cuzkd.formats.printable import printable
from cuzkd.groth16.keys import Proof

MAX_MANIFEST_BYTES = 64 << 20
NAMES_SHOWN = 20
Look = Callable[[Findings, RawFile, bool], None]


def inspect(path: str | os.PathLike[str], *, points: bool = False) -> Findings:
    """Never raises for what is wrong with a file: that is in `problem`. points: check all points, which takes time."""
    found = Findings(str(path))
    try:
        if Path(path).is_dir():
            _look_at_folder(found, Path(path))
        else:
            file = RawFile(path)
            found.nbytes = file.size
            kind = kind_of(file)
            found.kind = str(kind)
            _look_for(kind, file)(found, file, points)
    except CuzkdError as error:
        found.problem = str(error) if str(path) in str(error) else f"{path}: {error}"
    return found


def _look_for(kind: Kind, file: RawFile) -> Look:
    """Who knows more. Raises InvalidInput for what is nothing of ours."""
    looks: dict[Kind, Look] = {
        Kind.ZKEY: circoms.look_at_zkey,
        Kind.WTNS: circoms.look_at_wtns,
        Kind.R1CS: circoms.look_at_r1cs,
        Kind.WASM: circoms.look_at_wasm,
        Kind.VK: bellmans.look_at_vk,
        Kind.PARAMS: bellmans.look_at_params,
        Kind.PROOFS: _look_at_proofs,
        Kind.JSON: _look_at_json,
    }
    if kind in looks:
        return looks[kind]
    if kind is Kind.PTAU:
        raise InvalidInput(
            f"{file.path}: powers of tau are what a set-up begins with; cuzkd does not read them"
        )
    if file.path.with_name(MANIFEST).is_file():
        return _look_at_prepared
    head = bytes(file.read(0, min(16, file.size)))
    raise InvalidInput(f"{file.path}: nothing that cuzkd knows: it begins with {head.hex(' ')}")


def _look_at_proofs(found: Findings, file: RawFile, points: bool) -> None:
    """One proof, or several in a row."""
    curve = bytes_curve(file)
    length = proof_bytes.LENGTHS[curve]
    found.facts |= {"curve": curve, "proofs": file.size // length}
    for index, begin in enumerate(range(0, file.size, length)):
        where = f"{file.path}: proof {index}"
        proof = proof_bytes.decode(curve, bytes(file.read(begin, length)), where)
        _check_proof(found, proof, where, points)


def _check_proof(found: Findings, proof: Proof, where: str, points: bool) -> None:
    """Raises MalformedFile, or InvalidKey for a point of another order."""
    for name, problem in (
        ("A", affine.g1_problem(proof.curve, affine.g1_from_array(proof.curve, proof.a))),
        ("B", affine.g2_problem(proof.curve, affine.g2_from_array(proof.curve, proof.b))),
        ("C", affine.g1_problem(proof.curve, affine.g1_from_array(proof.curve, proof.c))),
    ):
        if problem:
            raise MalformedFile(f"{where}: {name}: {problem}")
    found.facts["points"] = "on their curves"
    if points:
        circoms.require_good(proof.curve, "g1", np.stack([proof.a, proof.c]), f"{where}: A, C", 0)
        circoms.require_good(proof.curve, "g2", proof.b[None], f"{where}: B", 0)
        found.facts["points"] = "on their curves, order r"


# -- JSON ----------------------------------------------------------------------------------------------------


def _look_at_json(found: Findings, file: RawFile, points: bool) -> None:
    text, record = snarkjs.load(file.path)
    if isinstance(record, list):
        _look_at_publics(found, text, record)
    elif "pi_a" in record:
        _look_at_proof(found, text, record, points)
    elif "vk_alpha_1" in record:
        found.kind = "verification key (JSON of snarkjs)"
        vk = snarkjs.vkey_from_json(text, found.path)
        found.facts["curve"] = vk.curve
        found.verifying_key(vk)
        if points:
            bellmans.check_key(found, vk)
    elif "constraint_check" in record:
        _look_at_folder(found, file.path.parent)
    else:
        _look_at_inputs(found, text)


def _look_at_publics(found: Findings, text: bytes, values: list[Any]) -> None:
    found.kind = "public values (JSON of snarkjs)"
    found.facts["values"] = len(values)
    fitting, problem = [], ""
    for curve in params.CURVES:
        try:
            snarkjs.publics_from_json(text, found.path, curve)
            fitting.append(curve)
        except MalformedFile as error:
            problem = str(error)
    if not fitting:
        raise MalformedFile(problem)
    found.facts["below r of"] = fitting


def _look_at_proof(found: Findings, text: bytes, record: dict[str, Any], points: bool) -> None:
    found.kind = "proof (JSON of snarkjs)"
    curve = json_curve(text, record, found.path)
    found.facts |= {"curve": curve, "the file names its curve": "curve" in record}
    _check_proof(found, snarkjs.proof_from_json(text, found.path, curve), found.path, points)


def _look_at_inputs(found: Findings, text: bytes) -> None:
    """Any object of numbers may be what a witness calculator is fed with: names and numbers of signals, then."""
    widest = max(params.CURVES.values(), key=lambda curve: curve.r).name
    found.kind = "JSON object"
    try:
        signals = inputs.parse(text, widest)
    except InvalidInput as error:
        why = str(error).removeprefix("input JSON: ").removesuffix(f" (curve {widest})")
        raise InvalidInput(f"{found.path}: nothing of snarkjs; and no inputs of a circuit: {why}") from None
    found.kind = "JSON object; as inputs of a circuit"
    found.facts |= {
        "signals": len(signals),
        "values": sum(map(len, signals.values())) // inputs.N8,
        "names": [*map(printable, [*signals][:NAMES_SHOWN])] + ["..."] * (len(signals) > NAMES_SHOWN),
    }


# -- prepared circuits ---------------------------------------------------------------------------------------


def _look_at_prepared(found: Findings, file: RawFile, points: bool) -> None:
    """The manifest beside it says what lies where."""
    _look_at_folder(found, file.path.parent)
    found.kind = "prepared key"


def _look_at_folder(found: Findings, folder: Path) -> None:
    """A circuit of a state directory. Digests are for provers, which compare them whenever they open it."""
    found.kind = "folder"
    path = folder / MANIFEST
    if not path.is_file():
        raise InvalidInput(f"{folder}: a folder without {MANIFEST}: no circuit of a state directory")
    found.kind = "circuit, added and prepared"
    known = RawFile(path)
    if known.size > MAX_MANIFEST_BYTES:
        raise InvalidKey(f"{path}: expected at most {MAX_MANIFEST_BYTES} bytes, found {known.size}")
    try:
        text = bytes(known.read(0, known.size)).decode()
    except UnicodeDecodeError as error:
        raise InvalidKey(f"{path}: is not UTF-8: {error}") from None
    manifest = manifests.from_json(text, str(path))
    found.nbytes = manifest.key_bytes
    found.facts |= {
        "name": manifest.name,
        "digest": manifest.digest,
        "curve": manifest.curve,
        "constraints": manifest.n_constraints,
        "wires": manifest.n_wires,
        "public": manifest.n_public,
        "domain": 1 << manifest.log_domain,
        "coefficients": manifest.n_coefficients,
        "reduction": manifest.reduction,
        "roots of unity from": manifest.root_family,
        "C": manifest.constraint_check,
        "witness calculator": manifest.calculator or "none",
        "made from": manifest.source,
    }
    found.sections += [
        {"section": entry.name, "at byte": entry.offset, "bytes": entry.nbytes, "rows": entry.shape[0]}
        for entry in manifest.sections
    ]
    key = RawFile(folder / KEY)
    if key.size != manifest.key_bytes:
        raise InvalidKey(f"{key.path}: expected {manifest.key_bytes} bytes by its manifest, found {key.size}")
