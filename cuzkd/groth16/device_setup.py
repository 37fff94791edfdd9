"""Development keys that come into being on the device: `setup.setup` for sizes that no host makes in time. INSECURE.

The same key to the byte from the same secrets. What assembly and verification need of it comes back as a head; its
bulk is resident from the start, ready for proofs, and was never anywhere else (`backend/cuda_setup.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cuzkd.backend.protocol import KeyShape
from cuzkd.groth16 import hosts, setup
from cuzkd.groth16.constraints import Constraints
from cuzkd.groth16.hosts import Host
from cuzkd.groth16.keys import KeyHead

if TYPE_CHECKING:  # cupy: only where there is a device
    from cuzkd.backend.cuda import CudaBackend, CudaKey


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
) -> tuple[DevelopmentHead, CudaKey]:
    """An INSECURE key for these constraints, loaded on the backend's device. secrets: random ones by default.

    Raises InvalidInput as setup.setup does, InvalidKey when an index of a matrix is out of bounds, Exhausted when the
    device has too little memory left. Where it returns, the key is complete and prepared: nothing is under way.
    """
    from cuzkd.backend import cuda_setup

    matrices = setup.matrices(constraints)
    k = setup.secrets_for(constraints, secrets)
    curve = constraints.curve
    shape = KeyShape(
        curve=curve,
        root_family=setup.ROOT_FAMILY,
        reduction="circom",
        log_domain=constraints.log_domain,
        n_wires=constraints.n_wires,
        n_public=constraints.n_public,
        n_rows=constraints.n_rows,
    )
    ic, loaded = cuda_setup.make_key(
        backend, shape, matrices, tau=k.tau, alpha=k.alpha, beta=k.beta, delta=k.delta
    )
    backend.prepare(shape)
    vk, beta_g1, delta_g1 = setup.head_points(curve, k, ic, host or hosts.best())
    return DevelopmentHead(vk, beta_g1, delta_g1, shape, constraints), loaded
