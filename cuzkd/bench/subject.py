"""What a bench proves: a synthetic circuit, a development key on a device, and witnesses in files.

The key is made from secrets that this process knows: INSECURE, and worth nothing outside of a bench. On a
GPU it is made there and never crosses; on the processor as groth16/setup.py does. Witness number i satisfies
the circuit and differs from every other, up to a number. Files are written when they are first asked for.
Before anything is made, it is counted: pages that are touched but are not there would end the process.

Life: make(...) -> witness(number) -> the block's end.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from cuzkd.backend.protocol import QUERIES, Backend, KeyShape, LoadedKey
from cuzkd.bench.report import GIB
from cuzkd.circuits.synthetic import Synthetic
from cuzkd.curves.params import CURVES
from cuzkd.engine.fleet.budget_desk import Limit, auto_limit
from cuzkd.engine.prover.residency import constraint_bytes
from cuzkd.errors import DeviceFault, NeverFits
from cuzkd.formats.zkey import ROOT_FAMILY
from cuzkd.groth16 import setup, verifier
from cuzkd.groth16.constraints import Constraints
from cuzkd.groth16.keys import KeyHead, Proof
from cuzkd.memory.upstream import round_to_pages

if TYPE_CHECKING:  # cupy: only where there is a device
    from cuzkd.backend.cuda import CudaBackend, CudaKey

SHARED_MEMORY = Path("/dev/shm")
FR_BYTES = 32
CONSTRAINT_BYTES = 69  # of the matrices, for each row: 68.2 at 65,000
# Of a row of the domain, while the processor makes a key, beside matrices and points: 206 to 318, measured with
# 65,000 to 260,000 constraints on both curves.
SETUP_BYTES = 320


@dataclass(kw_only=True)
class Provable(ABC):
    """engine.prover.residency.Openable, with a witness to prove. made_s: seconds its parts took to make, or to load."""

    name: str
    digest: str
    backend: Backend
    key: KeyHead
    loaded: LoadedKey
    made_s: dict[str, float] = field(default_factory=dict)

    @property
    def head(self) -> KeyHead:
        return self.key.head()

    def loading_bytes(self, backend: Backend) -> int:
        return max(self.point_bytes, self.loaded.host_bytes)

    def load_on(
        self, backend: Backend, turn: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> LoadedKey:
        """It is there already."""
        return self.loaded

    @property
    def head_bytes(self) -> int:
        return constraint_bytes(self.key)

    @property
    def point_bytes(self) -> int:
        return self.key.arrays.host_bytes

    @property
    def witness_bytes(self) -> int:
        return FR_BYTES * self.key.arrays.n_wires

    @property
    def lease_bytes(self) -> int:
        """Of host memory that a partition holds when z, a, b and c are made."""
        return _lease_bytes(self.backend, self.key.arrays)

    @abstractmethod
    def witness(self, number: int) -> Path:
        """The file of witness `number`."""

    def require_valid(self, proof: Proof, publics: list[int], whose: str) -> None:
        """Raises DeviceFault unless this proof verifies, and fails for another first public input, if there is one."""
        vk = self.key.vk
        other = [(value + 1) % CURVES[vk.curve].r for value in publics[:1]] + publics[1:]
        forged = bool(publics) and verifier.verify(vk, proof, other)
        if not verifier.verify(vk, proof, publics) or forged:
            raise DeviceFault(f"{whose}: a proof does not verify")


@dataclass(kw_only=True)
class Subject(Provable):
    """Of a synthetic circuit. distinct: witnesses that differ; number i is number i mod distinct."""

    circuit: Synthetic
    folder: Path
    distinct: int

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
    curve: str,
    n_constraints: int,
    backend: Backend,
    folder: Path | None = None,
    distinct: int = 16,
    holding: int = 1,
    vram_bytes: int = 0,
    host_bytes: int = 0,
) -> Iterator[Subject]:
    """A subject of n_constraints, for a block. folder: where witness files go (default: memory, if there is room).
    holding: how many partitions will have vectors at a time. vram_bytes: the device uses no more once the key is made.
    host_bytes: of memory that the host has; 0: what it says. Virtual machines that grow say less than they have.

    Raises InvalidInput for a size that cannot be, NeverFits where the host has not the memory for it, Exhausted when
    the device has no room for the key.
    """
    circuit = Synthetic(curve, n_constraints)
    left = _require_room(circuit, backend, holding, vram_bytes > 0, host_bytes)
    if folder is None and (distinct + 1) * FR_BYTES * circuit.n_wires < min(left, _free(SHARED_MEMORY)):
        folder = SHARED_MEMORY
    with tempfile.TemporaryDirectory(prefix="cuzkd-bench-", dir=folder) as place:
        began = time.monotonic()
        constraints = circuit.constraints()
        constraints_s = time.monotonic() - began
        began = time.monotonic()
        key, loaded = _key(constraints, backend, vram_bytes)
        made_s = {"constraints": constraints_s, "key": time.monotonic() - began}
        name = f"synthetic-{n_constraints}-{curve}"
        try:
            yield Subject(
                name=name,
                digest=key.vk.digest(),
                backend=backend,
                key=key,
                loaded=loaded,
                made_s=made_s,
                circuit=circuit,
                folder=Path(place),
                distinct=distinct,
            )
        finally:
            loaded.close()


def _require_room(
    circuit: Synthetic, backend: Backend, holding: int, streamed: bool, host_bytes: int = 0
) -> int:
    """Bytes of host memory that are left for others. streamed: the key may have to stay there. Raises NeverFits."""
    shape = KeyShape(
        curve=circuit.curve,
        root_family=ROOT_FAMILY,
        reduction="circom",
        log_domain=(circuit.n_constraints + circuit.n_public).bit_length(),
        n_wires=circuit.n_wires,
        n_public=circuit.n_public,
        n_rows=circuit.n_constraints + circuit.n_public + 1,
    )
    vectors = holding * _lease_bytes(backend, shape)
    fixed, making = CONSTRAINT_BYTES * shape.n_rows, 0
    if backend.name != "cuda" or streamed:
        fixed += 16 * CURVES[shape.curve].fq_limbs * (5 * shape.n_wires + shape.domain)
        making = 0 if backend.name == "cuda" else SETUP_BYTES * shape.domain
    needed = fixed + max(vectors, making)
    limit = (
        Limit(host_bytes * 9 // 10, f"nine tenths of {host_bytes} as told") if host_bytes else auto_limit()
    )
    if needed > limit.limit_bytes:
        raise NeverFits(
            f"{circuit.n_constraints:,} constraints take {needed / GIB:.1f} GiB of host memory: {fixed / GIB:.1f} of "
            f"matrices and key, then {making / GIB:.1f} to make it or {vectors / GIB:.1f} GiB of vectors for {holding} "
            f"partitions; there are {limit.limit_bytes / GIB:.1f} GiB ({limit.source})"
        )
    return limit.limit_bytes - needed


def _lease_bytes(backend: Backend, shape: KeyShape) -> int:
    column = round_to_pages(FR_BYTES * backend.vector_rows(shape))
    return round_to_pages(FR_BYTES * shape.n_wires) + 3 * column


def _key(constraints: Constraints, backend: Backend, vram_bytes: int) -> tuple[KeyHead, LoadedKey]:
    if backend.name == "cuda":
        from cuzkd.backend import cuda
        from cuzkd.groth16 import device_setup

        device = cast(cuda.CudaBackend, backend)
        head, made = device_setup.develop_key(device, constraints)
        return head, (_within(vram_bytes, device, head, made) if vram_bytes else made)
    key = setup.setup(constraints)
    return key, backend.load_key(key.arrays)


def _within(vram_bytes: int, device: CudaBackend, head: KeyHead, made: CudaKey) -> CudaKey:
    """The key as a device of so much memory has it: what does not fit is in host memory."""
    from cuzkd.groth16 import device_setup

    device.plan_within(vram_bytes)
    receiver = device.receive(head.arrays)
    for query in QUERIES:
        at = 0
        for block in device_setup.fetch(head, made).blocks(query):
            receiver.into(query, at, np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)
            at += block.nbytes
    made.close()
    device.trim()
    loaded = receiver.finish()
    device.stay_within()
    return loaded


def _free(folder: Path) -> int:
    """Bytes that it has room for; none, if it is not there."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0
