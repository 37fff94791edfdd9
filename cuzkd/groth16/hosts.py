"""The arithmetic that this floor does on the host, whatever device proves: synthesis, assembly, verification, set-up.

Natively where the native module loads, else in plain ints: a proof can then still be verified, in seconds.
Every function here takes `host`, so that tests run the same proof through both and compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from cuzkd.backend import reference
from cuzkd.backend.protocol import U64, SparseMatrix
from cuzkd.curves import limbs


class Services(Protocol):
    """The host services of backend/cpu.py, documented there; backend/reference.py has them, too. Both are modules."""

    def copy_witness(self, curve: str, raw: Any, out: U64) -> int: ...
    def spmv_into(
        self, curve: str, matrix: SparseMatrix, z: U64, out: U64, row_begin: int, row_end: int
    ) -> None: ...
    def first_mismatch(self, curve: str, a: U64, b: U64, c: U64, begin: int, end: int) -> int: ...
    def fixed_base_mul(self, curve: str, group: str, scalars: U64) -> U64: ...
    def check_points(self, curve: str, group: str, points: U64, subgroup: bool = False) -> int: ...
    def pairing_check(self, curve: str, g1: U64, g2: U64) -> bool: ...


class Operations(Protocol):
    """Those of a backend's plain operations (backend/protocol.py) that are used here."""

    def field_op(self, curve: str, fld: str, op: str, a: U64, b: U64 | None = None) -> U64: ...
    def point_op(self, curve: str, group: str, op: str, p: U64, q: U64 | None = None) -> U64: ...
    def msm(self, curve: str, group: str, bases: U64, scalars: U64) -> U64: ...
    def quotient(self, curve: str, a: U64, b: U64, root_family: int, reduction: str = "circom") -> U64: ...
    def spmv(self, curve: str, matrix: SparseMatrix, z: U64) -> U64: ...


@dataclass(frozen=True)
class Host:
    """services: bulk work on host arrays. backend: plain operations of the protocol."""

    services: Services
    backend: Operations


@cache
def plain() -> Host:
    """Python ints."""
    return Host(reference, reference.ReferenceBackend())


@cache
def best() -> Host:
    """The native module, or ints where it does not load (a source tree that was not built)."""
    try:
        from cuzkd.backend import cpu
    except ImportError:
        return plain()
    return Host(cpu, cpu.CpuBackend())


def scalars(values: Sequence[int]) -> U64:
    """Plain ints in [0, 2^256) as CANONICAL uint64[n, 4]."""
    return limbs.from_ints(values, limbs.FR_LIMBS)
