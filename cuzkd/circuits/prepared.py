"""A proving key in a key file, and back: which arrays, by which names.

Points are Montgomery, affine; matrices are compressed by row, each with its table of coefficients. The arrays
of the verifying key and the single points lie in the same file, so that manifest and key file are all that a
circuit is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cuzkd.backend.protocol import KeyArrays, SparseMatrix
from cuzkd.circuits import keyfile
from cuzkd.circuits import manifest as manifests
from cuzkd.circuits.manifest import CHUNK_BYTES, Manifest
from cuzkd.errors import InvalidKey
from cuzkd.groth16.constraints import Constraints
from cuzkd.groth16.keys import ProvingKey, VerifyingKey

Array = NDArray[Any]
_VK = ("alpha_g1", "beta_g2", "gamma_g2", "delta_g2", "ic")
_SINGLE = ("beta_g1", "delta_g1")
_MATRIX = ("row_ptr", "cols", "coeff", "table")
_BULK = ("a_g1", "b_g1", "b_g2", "l_g1", "h_g1")


def write(path: Path, name: str, key: ProvingKey, source: str) -> Manifest:
    """Write a key to a new file. Returns the manifest that describes it; writing that is for the caller."""
    constraints, bulk = key.constraints, key.arrays
    arrays: list[tuple[str, Array]] = [(field, getattr(key.vk, field)) for field in _VK]
    arrays += [(field, getattr(key, field)) for field in _SINGLE]
    matrices = {"a": constraints.a, "b": constraints.b} | (
        {} if constraints.c is None else {"c": constraints.c}
    )
    for letter, matrix in matrices.items():
        arrays += [(f"{letter}.{field}", getattr(matrix, field)) for field in _MATRIX]
    arrays += [(field, getattr(bulk, field)) for field in _BULK]
    written = keyfile.write(path, arrays)
    return manifests.make(
        name=name,
        curve=bulk.curve,
        n_constraints=constraints.n_constraints,
        n_public=bulk.n_public,
        n_wires=bulk.n_wires,
        log_domain=bulk.log_domain,
        root_family=bulk.root_family,
        reduction=bulk.reduction,
        constraint_check="derived" if constraints.c is None else "checked",
        n_coefficients=sum(len(matrix.cols) for matrix in matrices.values()),
        key_bytes=written.key_bytes,
        resident_bytes=written.resident_bytes,
        chunk_bytes=CHUNK_BYTES,
        chunk_digests=written.chunk_digests,
        sections=written.sections,
        source=source,
    )


def load(path: Path, manifest: Manifest, *, check_digests: bool = True) -> ProvingKey:
    """The key in a key file, its arrays read-only windows of the map. Raises InvalidKey; see
    keyfile.map_arrays.
    """
    arrays = keyfile.map_arrays(path, manifest, check_digests=check_digests)
    matrices = ("a", "b", "c") if manifest.constraint_check == "checked" else ("a", "b")
    wanted = {*_VK, *_SINGLE, *_BULK, *(f"{letter}.{field}" for letter in matrices for field in _MATRIX)}
    if arrays.keys() != wanted:
        raise InvalidKey(f"{path}: sections missing or unknown: {sorted(arrays.keys() ^ wanted)}")
    a, b, c = (_matrix(arrays, letter, manifest.n_wires) if letter in matrices else None for letter in "abc")
    assert a is not None and b is not None
    bulk = KeyArrays(
        curve=manifest.curve,
        root_family=manifest.root_family,
        reduction=manifest.reduction,
        log_domain=manifest.log_domain,
        n_wires=manifest.n_wires,
        n_public=manifest.n_public,
        n_rows=manifest.n_rows,
        **{field: arrays[field] for field in _BULK},
    )
    vk = VerifyingKey(curve=manifest.curve, **{field: arrays[field] for field in _VK})
    constraints = Constraints(manifest.curve, manifest.n_public, a, b, c)
    return ProvingKey(vk, arrays["beta_g1"], arrays["delta_g1"], bulk, constraints)


def _matrix(arrays: Mapping[str, Array], letter: str, n_wires: int) -> SparseMatrix:
    return SparseMatrix(n_wires, *(arrays[f"{letter}.{field}"] for field in _MATRIX))
