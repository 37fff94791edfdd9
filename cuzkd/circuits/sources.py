"""The files that people have, as what the registry adds: a key that comes in blocks, and what goes with it.

    --zkey [--r1cs]         a key of snarkjs; with the constraint system its C is known, and A and B must agree
    --params --r1cs         a key of bellman, which holds no matrices
    --vkey                  the verification key that the operator trusts: snarkjs's JSON, or bellman's .vk
    --wasm                  circom's witness calculator

Design: each file is opened once and stays that file; nothing is mapped. What does not belong together is refused
before anything of size is read.
Life: `gather` opens; the key's points are read when the registry asks for them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cuzkd.backend.protocol import ROOT_FAMILIES
from cuzkd.circuits import calculator_child, checks
from cuzkd.errors import InvalidInput, InvalidWitness, MalformedFile
from cuzkd.formats import bellman, bellman_vk, r1cs, snarkjs, zkey
from cuzkd.formats.files import RawFile
from cuzkd.groth16.constraints import Constraints
from cuzkd.groth16.keys import KeyHead, ProvingKey, StreamedKey, VerifyingKey

PathLike = str | os.PathLike[str]
# Real calculators have some MB.
MAX_CALCULATOR_BYTES = 256 << 20
WASM_MAGIC = b"\0asm"


@dataclass(frozen=True)
class Source:
    """What is to be added. name: for people. families: root families that H may be of. calculator: .wasm, or empty."""

    name: str
    key: StreamedKey | ProvingKey
    families: Sequence[int]
    expected: VerifyingKey | None = None
    calculator: bytes = b""


def gather(
    name: str,
    *,
    zkey_path: PathLike | None,
    params_path: PathLike | None,
    r1cs_path: PathLike | None,
    wasm_path: PathLike | None,
    vkey_path: PathLike | None,
    state_dir: Path,
) -> Source:
    """Raises InvalidInput for a choice of files that makes no circuit, MalformedFile, and InvalidKey when they are not
    of one circuit. name: the circuit's, for messages. state_dir: where the compiled calculator is kept, so that the
    first job need not wait for it.
    """
    if (zkey_path is None) == (params_path is None):
        raise InvalidInput(f"circuit {name}: expected a .zkey or bellman parameters, one of them")
    constraints = None if r1cs_path is None else r1cs.read(r1cs_path)
    key: StreamedKey
    if zkey_path is not None:
        source = Path(zkey_path).name
        key = zkey.open(zkey_path)
        families = [key.arrays.root_family]
        if constraints is not None:
            checks.require_same_rows(key.constraints, constraints, source, Path(str(r1cs_path)).name)
            key = replace(key, constraints=_with_c(key.constraints, constraints))
    else:
        assert params_path is not None
        if constraints is None:
            raise InvalidInput(
                f"circuit {name}: bellman parameters hold no constraints: expected the .r1cs with them"
            )
        source = Path(params_path).name
        key = bellman.open_params(params_path, constraints)
        # snarkjs exports keys over BN254 in this format, too, with its own roots; nothing in the file tells.
        families = list(ROOT_FAMILIES) if key.arrays.curve == "bn254" else [key.arrays.root_family]
    expected = None if vkey_path is None else _verification_key(vkey_path, key.vk.curve)
    calculator = b"" if wasm_path is None else _calculator(name, wasm_path, key, state_dir)
    return Source(source, key, families, expected, calculator)


def read_calculator(path: PathLike) -> bytes:
    """A .wasm, whole. Raises InvalidInput, MalformedFile."""
    file = RawFile(path)
    if file.size > MAX_CALCULATOR_BYTES:
        raise MalformedFile(f"{path}: {file.size} bytes: more than a witness calculator may have")
    data = bytes(file.read(0, file.size))
    if not data.startswith(WASM_MAGIC):
        raise MalformedFile(f"{path}: expected magic {WASM_MAGIC!r} (WebAssembly), found {data[:4]!r}")
    return data


def _with_c(ours: Constraints, theirs: Constraints) -> Constraints:
    return replace(ours, c=theirs.c)


def _verification_key(path: PathLike, curve: str) -> VerifyingKey:
    """JSON begins with a brace; a point that begins with it is above both primes."""
    file = RawFile(path)
    looks_like_json = bytes(file.read(0, min(file.size, 256))).lstrip()[:1] in (b"{", b"[", b'"', b"")
    return snarkjs.read_vkey(path) if looks_like_json else bellman_vk.read_vk(path, curve)


def _calculator(name: str, path: PathLike, key: KeyHead, state_dir: Path) -> bytes:
    data = read_calculator(path)
    try:
        calculator_child.ask(data, str(path), state_dir).require_fits(name, key.vk.curve, key.arrays.n_wires)
    except InvalidWitness as error:  # nobody has sent one yet
        raise InvalidInput(str(error)) from error
    return data
