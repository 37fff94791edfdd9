"""A proving key in a key file, and back: which arrays, by which names.

Points are Montgomery, affine; matrices are compressed by row, each with its table of coefficients. The arrays
of the verifying key and the single points lie in the same file, so that manifest and key file are all that a
circuit is. Small things and matrices first, then the points, query by query, so that a key whose points come in
blocks is written as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cuzkd.backend.protocol import QUERIES, U64, KeyArrays, KeyShape, SparseMatrix
from cuzkd.circuits import manifest as manifests
from cuzkd.circuits.keyfile import READ_THREADS, Into, KeyFile, Memory, Writer
from cuzkd.circuits.manifest import CHUNK_BYTES, Manifest
from cuzkd.errors import InvalidKey
from cuzkd.groth16.constraints import Constraints
from cuzkd.groth16.keys import KeyHead, ProvingKey, StreamedKey, VerifyingKey

Array = NDArray[Any]
Blocks = Callable[[str], Iterator[U64]]
_VK = ("alpha_g1", "beta_g2", "gamma_g2", "delta_g2", "ic")
_SINGLE = ("beta_g1", "delta_g1")
_MATRIX = ("row_ptr", "cols", "coeff", "table")


@dataclass(frozen=True)
class Written:
    """What a manifest says of a key file."""

    known: Mapping[str, Any]

    def manifest(self, **more: Any) -> Manifest:
        """more: name, root_family, calculator, source."""
        return manifests.make(**self.known, **more)


def write(path: Path, key: KeyHead, blocks: Blocks) -> Written:
    """Write a key to a new file, synced. blocks: the points of each of QUERIES, read once, in that order."""
    shape, constraints = key.arrays, key.constraints
    matrices = {"a": constraints.a, "b": constraints.b, "c": constraints.c}
    present = {letter: matrix for letter, matrix in matrices.items() if matrix is not None}
    with Writer(path) as out:
        for field in _VK:
            out.array(field, getattr(key.vk, field))
        for field in _SINGLE:
            out.array(field, getattr(key, field))
        for letter, matrix in present.items():
            for field in _MATRIX:
                out.array(f"{letter}.{field}", getattr(matrix, field))
        for query in QUERIES:
            out.blocks(query, "uint64", shape.shape_of(query), blocks(query))
        sections, key_bytes = out.finish()
    return Written(
        {
            "curve": shape.curve,
            "n_constraints": constraints.n_constraints,
            "n_public": shape.n_public,
            "n_wires": shape.n_wires,
            "log_domain": shape.log_domain,
            "reduction": shape.reduction,
            "constraint_check": "derived" if constraints.c is None else "checked",
            "n_coefficients": sum(len(matrix.cols) for matrix in present.values()),
            "key_bytes": key_bytes,
            "sections": sections,
        }
    )


def point_bytes(manifest: Manifest) -> int:
    """Of host memory, that the points take."""
    return sum(section.page_bytes for section in manifest.sections if section.name in QUERIES)


def head_bytes(manifest: Manifest) -> int:
    """Of host memory, that everything else takes: nearly all of it the matrices."""
    return manifest.key_bytes - point_bytes(manifest)


def pouring_bytes(manifest: Manifest) -> int:
    """Of host memory, that pour_points takes at most."""
    return min(point_bytes(manifest), READ_THREADS * CHUNK_BYTES)


def load(path: Path, manifest: Manifest) -> ProvingKey:
    """All of a key, in memory of our own. Raises InvalidKey, Exhausted; see keyfile.KeyFile."""
    with KeyFile(path, manifest) as file:
        names = _require_complete(file, manifest)
        arrays = file.read(names)
    head = _head(arrays, manifest)
    known = _shape(manifest) | {query: arrays[query] for query in QUERIES}
    bulk = KeyArrays(**known)
    return ProvingKey(head.vk, head.beta_g1, head.delta_g1, bulk, head.constraints)


def load_head(path: Path, manifest: Manifest) -> KeyHead:
    """A key without its points, in memory of our own. Raises as load."""
    with KeyFile(path, manifest) as file:
        names = _require_complete(file, manifest)
        return _head(file.read(name for name in names if name not in QUERIES), manifest)


def pour_points(path: Path, manifest: Manifest, memory: Memory, into: Into) -> None:
    """The points of a key, piece by piece; see KeyFile.pour. Raises as load."""
    with KeyFile(path, manifest) as file:
        _require_complete(file, manifest)
        file.pour(QUERIES, memory, into)


def stream(file: KeyFile, manifest: Manifest) -> StreamedKey:
    """A key whose points come from an open file when they are asked for. Raises InvalidKey, at once and then, too."""
    names = _require_complete(file, manifest)
    head = _head(file.read(name for name in names if name not in QUERIES), manifest)
    queries = {query: partial(file.blocks, query) for query in QUERIES}
    return StreamedKey(head.vk, head.beta_g1, head.delta_g1, head.arrays, head.constraints, queries)


def _require_complete(file: KeyFile, manifest: Manifest) -> list[str]:
    """The names of a key's arrays, all of which, and no other, are in the file; points as many as they must be."""
    wanted = [*_VK, *_SINGLE, *(f"{letter}.{field}" for letter in _letters(manifest) for field in _MATRIX)]
    wanted += QUERIES
    if file.names() != set(wanted):
        raise InvalidKey(f"{file.path}: sections missing or unknown: {sorted(file.names() ^ set(wanted))}")
    try:
        shapes = _shapes(manifest)
    except InvalidKey as error:
        raise InvalidKey(f"{file.path}: {error}") from error
    for section in manifest.sections:
        dtype, shape = shapes[section.name]
        if (section.dtype, section.shape) != (dtype, shape):
            raise InvalidKey(
                f"{file.path}: section {section.name}: expected {dtype}{list(shape)}, "
                f"found {section.dtype}{list(section.shape)}"
            )
    return wanted


def _shapes(manifest: Manifest) -> dict[str, tuple[str, tuple[int, ...]]]:
    """dtype and shape of each array. How many entries a matrix has, and how many distinct coefficients, the table of
    sections alone says; its arrays must agree about it.
    """
    shape = KeyShape(**_shape(manifest))
    length = {section.name: section.shape[0] if section.shape else 0 for section in manifest.sections}
    g1, g2 = shape.shape_of("a_g1")[1:], shape.shape_of("b_g2")[1:]
    words: dict[str, tuple[int, ...]] = {name: g2 if name.endswith("g2") else g1 for name in (*_VK, *_SINGLE)}
    words |= {"ic": (shape.n_public + 1, *g1)} | {query: shape.shape_of(query) for query in QUERIES}
    indices: dict[str, tuple[int, ...]] = {}
    for letter in _letters(manifest):
        words[f"{letter}.row_ptr"] = (shape.n_rows + 1,)
        words[f"{letter}.table"] = (max(length[f"{letter}.table"], 2), 4)
        indices |= {f"{letter}.{field}": (length[f"{letter}.cols"],) for field in ("cols", "coeff")}
    return {name: ("uint64", of) for name, of in words.items()} | {
        name: ("uint32", of) for name, of in indices.items()
    }


def _letters(manifest: Manifest) -> str:
    return "abc" if manifest.constraint_check == "checked" else "ab"


def shape(manifest: Manifest) -> KeyShape:
    return KeyShape(**_shape(manifest))


def _shape(manifest: Manifest) -> dict[str, Any]:
    names = ("curve", "root_family", "reduction", "log_domain", "n_wires", "n_public", "n_rows")
    return {name: getattr(manifest, name) for name in names}


def _head(arrays: Mapping[str, Array], manifest: Manifest) -> KeyHead:
    matrices = {letter: _matrix(arrays, letter, manifest.n_wires) for letter in _letters(manifest)}
    vk = VerifyingKey(curve=manifest.curve, **{field: arrays[field] for field in _VK})
    constraints = Constraints(
        manifest.curve, manifest.n_public, matrices["a"], matrices["b"], matrices.get("c")
    )
    shape = KeyShape(**_shape(manifest))
    return KeyHead(vk, arrays["beta_g1"], arrays["delta_g1"], shape, constraints)


def _matrix(arrays: Mapping[str, Array], letter: str, n_wires: int) -> SparseMatrix:
    return SparseMatrix(n_wires, *(arrays[f"{letter}.{field}"] for field in _MATRIX))
