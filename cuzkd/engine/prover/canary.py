"""A proof whose outcome is known: it tells whether a device computes rightly.

Problem. A device that computes wrongly shows it, if nobody looks, with the first client's proof; and a proof that
does not verify has three possible causes: the witness (where C is not known), the key, the device. The device alone is
common to all circuits.
Design. It is asked to prove what is beyond doubt: the built-in chain, under a development key made here, with a
witness made here; the proof is verified and goes nowhere. A prover does so for each curve of the installed circuits
before it says that it is ready, for a further curve before it loads that one's first key, and again whenever proofs
of others do not verify.
Life. Making the key takes longer than the proof, so it is kept in STATE/canary/, with the digests that every key file
of ours has. A copy that is damaged, or that cannot be written, costs the time of making it, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from cuzkd.backend.protocol import U64, Backend, nothing
from cuzkd.circuits import builtin, prepared
from cuzkd.circuits import manifest as manifests
from cuzkd.engine.faults import NoFaults
from cuzkd.engine.prover.device import on_device
from cuzkd.errors import CuzkdError, DeviceFault
from cuzkd.groth16 import hosts, prover, setup
from cuzkd.groth16.keys import ProvingKey

N_ROUNDS = 400  # three constraints each: a domain of 2^11, more than one tile of any kernel
PREIMAGE = 4711
MANIFEST, KEY = "manifest.json", "key.bin"


class Canary:
    """Call its methods with the device mutex held, one call at a time. folder: where its keys are kept, if anywhere."""

    def __init__(self, backend: Backend, faults: NoFaults | None = None, folder: Path | None = None) -> None:
        self._backend = backend if faults is None else cast(Backend, _Faulty(backend, faults))
        self._faults = faults or NoFaults()
        self._folder = folder
        self._rounds = 1 if backend.name == "reference" else N_ROUNDS  # plain ints would take minutes
        self._made: dict[str, tuple[ProvingKey, U64]] = {}
        self._tested: set[str] = set()

    def sings(self, curve: str) -> bool:
        """Whether a known circuit's proof, made on this device now, verifies. Raises Exhausted."""
        try:
            self._sing(curve)
        except DeviceFault:
            return False
        return True

    def test(self, curve: str) -> None:
        """The same, once for each curve. Raises DeviceFault, saying why, and Exhausted."""
        if curve not in self._tested:
            self._sing(curve)
            self._tested.add(curve)

    def test_all(self, curves: Sequence[str]) -> float:
        """Seconds that it took; 0 when there was nothing to test."""
        began_s = time.monotonic()
        for curve in curves:
            self.test(curve)
        return time.monotonic() - began_s if curves else 0.0

    def _sing(self, curve: str) -> None:
        if curve not in self._made:
            witness = builtin.witness(curve, self._rounds, PREIMAGE)
            self._made[curve] = self._key(curve), hosts.scalars(witness)
        key, scalars = self._made[curve]
        self._faults.at("selftest")
        with on_device("self-test"):
            prover.prove(self._backend, key, scalars)  # verifies

    def _key(self, curve: str) -> ProvingKey:
        if self._folder is None:
            return setup.setup(builtin.constraints(curve, self._rounds))
        place = self._folder / f"chain-{self._rounds}-{curve}"
        with contextlib.suppress(CuzkdError, OSError):
            manifest = manifests.from_json((place / MANIFEST).read_text(), str(place))
            return prepared.load(place / KEY, manifest)
        key = setup.setup(builtin.constraints(curve, self._rounds))
        with contextlib.suppress(CuzkdError, OSError):
            _keep(place, key)
        return key


def _keep(place: Path, key: ProvingKey) -> None:
    """Whole or not at all; instead of what is there."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".new-", ignore_cleanup_errors=True) as staging:
        made = Path(staging) / place.name
        made.mkdir(mode=0o700)
        written = prepared.write(made / KEY, key, key.blocks)
        shape = key.arrays
        manifest = written.manifest(
            name=place.name, root_family=shape.root_family, calculator="", source="canary"
        )
        (made / MANIFEST).write_text(manifest.to_json())
        shutil.rmtree(place, ignore_errors=True)
        os.rename(made, place)


class _Faulty:
    """A backend whose sums meet the faults that are planned."""

    def __init__(self, backend: Backend, faults: NoFaults) -> None:
        self._backend = backend
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def launch(self, upload: Any) -> Any:
        return _FaultyRun(self._backend.launch(upload), self._faults)


class _FaultyRun:
    def __init__(self, run: Any, faults: NoFaults) -> None:
        self._run = run
        self._faults = faults

    def result(self, device_free: Callable[[], None] = nothing) -> Any:
        return self._faults.sums(self._run.result(device_free), "selftest")
