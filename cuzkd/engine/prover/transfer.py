"""How a partition's vectors get to the device.

One seam, so that ways of doing it can be compared with everything else the same (bench/regimes.py has the
others). The daemon knows one: vectors are synthesised into page-locked memory and copied from there.

Life: synthesis makes the columns that a transfer names -> `made` (in the synthesis thread) -> `upload` (in
the GPU scheduler's thread, before the device is the partition's own or, where `holding_device`, after) ->
the leases go back.
"""

from __future__ import annotations

from typing import Protocol

from cuzkd.backend.protocol import Backend
from cuzkd.engine.prover.device import on_device
from cuzkd.engine.prover.partition import Partition, Vectors


class Transfer(Protocol):
    """See the module docstring.

    columns: vectors that cross beside z: "ab"; "abc" (then the device does not make c itself); "" (then it makes all
    of them from z). Where the key's matrices are on the device, none do (Synthesis).
    """

    name: str
    columns: str
    holding_device: bool

    def made(self, partition: Partition) -> None:
        """The vectors are made. Called by the synthesis thread before the partition counts as ready."""

    def upload(self, partition: Partition) -> None:
        """Set partition.upload; on return the copy has landed, and the vectors may be written again."""


class ZeroCopy:
    """Copies from where synthesis wrote."""

    name = "zero-copy"
    columns = "ab"
    holding_device = False

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def made(self, partition: Partition) -> None:
        """The vectors lie in page-locked memory already."""

    def upload(self, partition: Partition) -> None:
        copy_up(self._backend, partition)


def copy_up(backend: Backend, partition: Partition, vectors: Vectors | None = None) -> None:
    """Copy these vectors (the partition's own by default), and wait for them to land."""
    vectors = vectors or partition.made
    with on_device("upload", backend.device):
        upload = backend.upload(partition.key.loaded, vectors.a, vectors.b, vectors.c, vectors.z)
        partition.upload = upload
        upload.wait()
