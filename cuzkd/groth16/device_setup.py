"""Development keys that come into being on the device: `setup.setup` for sizes that no host makes in time. INSECURE.

The same key to the byte from the same secrets. What assembly and verification need of it comes back as a head; its
bulk is resident from the start, ready for proofs, and was never anywhere else (`backend/cuda_setup.py`). `fetch` is the
way back to the host, for keys that are to become files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cuzkd.backend.protocol import QUERIES, U64
from cuzkd.groth16 import hosts, setup
from cuzkd.groth16.constraints import Constraints
from cuzkd.groth16.hosts import Host
from cuzkd.groth16.keys import KeyHead, StreamedKey

if TYPE_CHECKING:  # cupy: only where there is a device
    from cuzkd.backend.cuda import CudaBackend, CudaKey

BLOCK_POINTS = 1 << 17  # that come back at a time: 12 MB in G1 of BLS12-381


@dataclass(frozen=True)
class DevelopmentHead(KeyHead):
    """The head of an INSECURE key: somebody knows its secrets and can forge its proofs."""

    @property
    def label(self) -> str:
        """What to call this key before people: always says that it is insecure."""
        return f"{setup.DEVELOPMENT} ({self.vk.curve}, domain 2^{self.arrays.log_domain}, {self.vk.digest()[:16]})"


def develop_key(
    backend: CudaBackend,
    constraints: Constraints,
    secrets: setup.Secrets | None = None,
    host: Host | None = None,
    *,
    reduction: str = "circom",
) -> tuple[DevelopmentHead, CudaKey]:
    """An INSECURE key for these constraints, loaded on the backend's device. secrets: random ones by default.
    reduction: as in KeyShape.

    Raises InvalidInput as setup.setup does, InvalidKey when an index of a matrix is out of bounds, Exhausted when the
    device has too little memory left. Where it returns, the key is complete and prepared: nothing is under way.
    """
    from cuzkd.backend import cuda_setup

    matrices = setup.matrices(constraints)
    shape = setup.shape_for(constraints, reduction)
    k = setup.secrets_for(shape, secrets)
    ic, loaded = cuda_setup.make_key(
        backend, shape, matrices, tau=k.tau, alpha=k.alpha, beta=k.beta, delta=k.delta
    )
    loaded = backend.adopt(loaded)
    vk, beta_g1, delta_g1 = setup.head_points(shape.curve, k, ic, host or hosts.best())
    return DevelopmentHead(vk, beta_g1, delta_g1, shape, constraints), loaded


def fetch(head: KeyHead, loaded: CudaKey) -> StreamedKey:
    """A key on its device as one that comes in blocks; `load()` brings all of it to the host.

    Its points are those in device memory: reading ends with Unavailable once `loaded` has been closed.
    """
    queries = {query: partial(_blocks, loaded, query) for query in QUERIES}
    return StreamedKey(head.vk, head.beta_g1, head.delta_g1, head.arrays, head.constraints, queries)


def _blocks(loaded: CudaKey, query: str) -> Iterator[U64]:
    begin = 0
    while len(block := loaded.read(query, begin, BLOCK_POINTS)):
        yield block
        begin += len(block)
