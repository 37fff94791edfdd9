"""What a bench proves: a synthetic circuit, a development key on a device, and witnesses in files.

The key is made from secrets that this process knows: INSECURE, and worth nothing outside of a bench. On a
GPU it is made there and never crosses; on the processor as groth16/setup.py does. Witness number i satisfies
the circuit and differs from every other, up to a number. Files are written when they are first asked for.

Life: make(...) -> witness(number) -> the block's end.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from cuzkd.backend.protocol import Backend, LoadedKey
from cuzkd.circuits.synthetic import Synthetic
from cuzkd.groth16 import setup
from cuzkd.groth16.constraints import Constraints
from cuzkd.groth16.keys import KeyHead
from cuzkd.memory.upstream import round_to_pages

SHARED_MEMORY = Path("/dev/shm")
FR_BYTES = 32


@dataclass
class Subject:
    """engine.residency.Openable, with witnesses. made_s: seconds that its parts took to make."""

    name: str
    digest: str
    backend: Backend
    circuit: Synthetic
    key: KeyHead
    loaded: LoadedKey
    folder: Path
    distinct: int  # witnesses that differ; number i is number i mod distinct
    made_s: dict[str, float] = field(default_factory=dict)

    def load_on(self, backend: Backend) -> LoadedKey:
        """It is there already."""
        return self.loaded

    @property
    def witness_bytes(self) -> int:
        return FR_BYTES * self.circuit.n_wires

    @property
    def lease_bytes(self) -> int:
        """Of host memory that a partition holds when z, a, b and c are made."""
        shape = self.key.arrays
        column = round_to_pages(FR_BYTES * self.backend.vector_rows(shape))
        return round_to_pages(FR_BYTES * shape.n_wires) + 3 * column

    def witness(self, number: int) -> Path:
        """The file of witness `number`, written if it is not there."""
        seed = number % self.distinct
        path = self.folder / f"{seed}.wtns"
        if not path.exists():
            began = time.monotonic()
            self.circuit.write_witness(path, seed)
            self.made_s["witness"] = time.monotonic() - began
        return path


@contextmanager
def make(
    curve: str, n_constraints: int, backend: Backend, folder: Path | None = None, distinct: int = 16
) -> Iterator[Subject]:
    """A subject of n_constraints, for a block. folder: where witness files go (default: memory, if there is room).

    Raises InvalidInput for a size that cannot be, Exhausted when the device has no room for the key.
    """
    began = time.monotonic()
    circuit = Synthetic(curve, n_constraints)
    constraints = circuit.constraints()
    constraints_s = time.monotonic() - began
    began = time.monotonic()
    key, loaded = _key(constraints, backend)
    made_s = {"constraints": constraints_s, "key": time.monotonic() - began}
    place = Path(
        tempfile.mkdtemp(
            prefix="cuzkd-bench-", dir=folder or _roomy((distinct + 1) * FR_BYTES * circuit.n_wires)
        )
    )
    name = f"synthetic-{n_constraints}-{curve}"
    try:
        yield Subject(name, key.vk.digest(), backend, circuit, key, loaded, place, distinct, made_s)
    finally:
        loaded.close()
        shutil.rmtree(place, ignore_errors=True)


def _key(constraints: Constraints, backend: Backend) -> tuple[KeyHead, LoadedKey]:
    if backend.name == "cuda":
        from cuzkd.backend import cuda
        from cuzkd.groth16 import device_setup

        return device_setup.develop_key(cast(cuda.CudaBackend, backend), constraints)
    key = setup.setup(constraints)
    return key, backend.load_key(key.arrays)


def _roomy(nbytes: int) -> Path | None:
    """Shared memory where it can hold so much, or None: the temporary folder."""
    try:
        return SHARED_MEMORY if shutil.disk_usage(SHARED_MEMORY).free > nbytes else None
    except OSError:
        return None
