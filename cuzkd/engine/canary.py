"""A proof whose outcome is known: when others fail, it tells whether the device is wrong.

A proof that does not verify has three possible causes: the witness (where C is not known), the key, the device. The
device alone is common to all circuits, so it is asked to prove one that is beyond doubt: the built-in chain, under a
development key made here, with a witness made here. The proof goes nowhere.
"""

from __future__ import annotations

from cuzkd.backend.protocol import U64, Backend
from cuzkd.circuits import builtin
from cuzkd.errors import DeviceFault
from cuzkd.groth16 import hosts, prover, setup
from cuzkd.groth16.keys import ProvingKey

N_ROUNDS = 300  # three constraints each: a domain of 2^10, more than one tile of any kernel
PREIMAGE = 4711


class Canary:
    """Call it with the device mutex held, one call at a time."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._made: dict[str, tuple[ProvingKey, U64]] = {}

    def sings(self, curve: str) -> bool:
        """Whether a known circuit's proof, made on this device now, verifies. Raises Exhausted."""
        if curve not in self._made:
            key = setup.setup(builtin.constraints(curve, N_ROUNDS))
            self._made[curve] = key, hosts.scalars(builtin.witness(curve, N_ROUNDS, PREIMAGE))
        key, witness = self._made[curve]
        try:
            prover.prove(self._backend, key, witness)  # verifies
        except DeviceFault:
            return False
        return True
