"""Keys loaded in this prover: each once, kept until dropped, never closed under a partition that uses it.

A key is charged to the host budget before it is opened ("key", the bytes of its arrays). On a device that
keeps its own copy the charge shrinks afterwards to what the host goes on using: the constraint matrices.
Several partitions that need the same key load it once; the others wait. A circuit that was removed and
added again under the same name has another digest: the old key is set aside at once and closed when its
last user is gone.

Lock order: this table's lock is never held while a key is loaded, a grant awaited or a message sent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from cuzkd.backend.protocol import Backend, LoadedKey, SparseMatrix
from cuzkd.engine.device import DeviceMutex, on_device
from cuzkd.engine.report import Reporter
from cuzkd.errors import CuzkdError, InvalidKey, from_code
from cuzkd.groth16.keys import KeyHead
from cuzkd.memory.budget import Grants, Reserved


class Openable(Protocol):
    """A circuit that can be proved: circuits.registry.Circuit, or what a bench puts in its place."""

    @property
    def digest(self) -> str: ...

    @property
    def key(self) -> KeyHead: ...

    def load_on(self, backend: Backend) -> LoadedKey:
        """Its points on a device, where they may be already."""


class ResidentKey:
    """A circuit's key, open on the host and loaded on the device."""

    def __init__(
        self,
        circuit: str,
        digest: str,
        proving: KeyHead,
        loaded: LoadedKey,
        reservation: Reserved,
        load_s: float,
    ) -> None:
        self.circuit = circuit
        self.digest = digest
        self.proving = proving
        self.loaded = loaded
        self.reservation = reservation
        self.load_s = load_s
        self.users = 0
        self.dropped = False

    @property
    def resident_bytes(self) -> int:
        return self.loaded.resident_bytes

    def close(self) -> None:
        self.loaded.close()
        self.reservation.release()


class _Loading:
    """A key on its way: whoever comes second waits here for the first one's outcome."""

    def __init__(self, digest: str) -> None:
        self.digest = digest
        self.done = threading.Event()
        self.error: CuzkdError | None = None


class Residency:
    def __init__(
        self,
        open_circuit: Callable[[str], Openable],
        backend: Backend,
        mutex: DeviceMutex,
        grants: Grants,
        reporter: Reporter,
    ) -> None:
        self._open_circuit = open_circuit
        self._backend = backend
        self._mutex = mutex
        self._grants = grants
        self._reporter = reporter
        self._lock = threading.Lock()
        self._keys: dict[str, ResidentKey] = {}
        self._set_aside: list[ResidentKey] = []
        self._loading: dict[str, _Loading] = {}

    @property
    def resident_bytes(self) -> int:
        with self._lock:
            return sum(key.resident_bytes for key in [*self._keys.values(), *self._set_aside])

    def use(self, circuit: str, digest: str = "") -> ResidentKey:
        """The key, loaded if need be; `done_with` ends the use. Blocks.

        Raises InvalidKey when the installed circuit has not this digest (any, if empty), and what opening and
        loading raise: NotFound, NeverFits, Exhausted, DeviceFault.
        """
        while True:
            with self._lock:
                key = self._keys.get(circuit)
                if key is not None and digest in ("", key.digest):
                    key.users += 1
                    return key
                loading = self._loading.get(circuit)
                mine = loading is None
                if loading is None:
                    loading = self._loading[circuit] = _Loading(digest)
            if mine:
                self._drop_other(circuit, digest)
                self._load(circuit, digest, loading)
            else:
                loading.done.wait()
            if loading.error is not None and loading.digest == digest:
                raise from_code(loading.error.code, str(loading.error))

    def done_with(self, key: ResidentKey) -> None:
        with self._lock:
            key.users -= 1
            last = key.dropped and key.users == 0
            if last:
                self._set_aside.remove(key)
        if last:
            key.close()

    def drop(self, circuit: str) -> None:
        """Forget a circuit: no later use finds it; its memory comes back when it is idle. Unknown names are
        fine.
        """
        with self._lock:
            key = self._keys.pop(circuit, None)
            if key is not None:
                key.dropped = True
                if key.users:
                    self._set_aside.append(key)
        if key is not None and not key.users:
            key.close()
        self._reporter.circuit(circuit, loaded=False, was_loaded=key is not None)

    def _drop_other(self, circuit: str, digest: str) -> None:
        with self._lock:
            key = self._keys.get(circuit)
        if key is not None and key.digest != digest:
            self.drop(circuit)

    def _load(self, circuit: str, digest: str, loading: _Loading) -> None:
        try:
            key = self._loaded(circuit, digest)
            with self._lock:
                self._keys[circuit] = key
            self._reporter.circuit(circuit, loaded=True, nbytes=key.resident_bytes, load_s=key.load_s)
        except Exception as error:
            loading.error = (
                error
                if isinstance(error, CuzkdError)
                else CuzkdError(f"loading circuit {circuit}: {error!r}")
            )
            self._reporter.circuit(circuit, loaded=False, error=loading.error)
        finally:
            with self._lock:
                del self._loading[circuit]
            loading.done.set()

    def _loaded(self, circuit: str, digest: str) -> ResidentKey:
        began = time.monotonic()
        opened = self._open_circuit(circuit)
        proving, installed = opened.key, opened.digest
        if digest not in ("", installed):
            raise InvalidKey(
                f"circuit {circuit}: the job was submitted for key {digest}, installed is {installed}"
            )
        matrices = constraint_bytes(proving)
        reservation = self._grants.reserve(matrices + proving.arrays.host_bytes, "key")
        try:
            with self._mutex.held(), on_device("loading a key"):  # the mutex orders keys too
                loaded = opened.load_on(self._backend)
        except BaseException:
            reservation.release()
            raise
        if not self._backend.in_place:
            reservation.shrink(matrices)
        return ResidentKey(circuit, installed, proving, loaded, reservation, time.monotonic() - began)


def constraint_bytes(proving: KeyHead) -> int:
    constraints = proving.constraints
    return sum(_matrix_bytes(m) for m in (constraints.a, constraints.b, constraints.c) if m is not None)


def _matrix_bytes(matrix: SparseMatrix) -> int:
    return matrix.row_ptr.nbytes + matrix.cols.nbytes + matrix.coeff.nbytes + matrix.table.nbytes
