"""Keys loaded in this prover: each once, kept until dropped, never closed under a partition that uses it.

A key is charged to the host budget before it is read ("key", the bytes of its arrays), and read into memory of this
process before the device is asked for, so that proofs go on meanwhile. Once a device has its own copy, the host's is
let go but for what synthesis and assembly use, nearly all of it the constraint matrices, and the charge shrinks to
that. Several partitions that need the same key load it once; the others wait. A circuit that was removed and added
again under the same name has another digest: the old key is set aside when the new one is asked for, and closed
when its last user is gone.

Lock order: `_telling` comes before the table's lock. Neither is held while a key is loaded or a grant awaited; the
table's is not held while a message is sent.
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
    def head_bytes(self) -> int:
        """Host memory that `key` takes without its points."""

    @property
    def point_bytes(self) -> int:
        """Host memory that its points take."""

    @property
    def key(self) -> KeyHead:
        """The key. Nothing of it was read before it was asked for."""

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
        self.closed = threading.Event()

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
        self._telling = (
            threading.Lock()
        )  # what the front hears of this table is in the order in which it was so
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
            self._close(key)

    def drop(self, circuit: str, digest: str = "") -> None:
        """Forget a circuit's key, or only one of this digest: no later use finds it. Returns when its last user is gone
        and its memory has come back. Unknown names are fine.
        """
        key = self._set_aside_if(circuit, lambda known: digest in ("", known))
        if key is None:
            self._tell(circuit)
        else:
            key.closed.wait()

    def _set_aside_if(self, circuit: str, chosen: Callable[[str], bool]) -> ResidentKey | None:
        """Take a key whose digest is chosen out of the table; it is closed now, or by its last user."""
        with self._lock:
            key = self._keys.get(circuit)
            if key is None or not chosen(key.digest):
                return None
            del self._keys[circuit]
            self._set_aside.append(key)
            key.dropped = True
            unused = key.users == 0
        if unused:
            self._close(key)
        return key

    def _close(self, key: ResidentKey) -> None:
        key.close()
        with self._lock:
            self._set_aside.remove(key)
        self._tell(key.circuit, was_loaded=True)
        key.closed.set()

    def _tell(self, circuit: str, was_loaded: bool = False) -> None:
        """The front hears how it stands with a circuit."""
        with self._telling:
            with self._lock:
                key = self._keys.get(circuit)
            self._reporter.circuit(
                circuit,
                loaded=key is not None,
                digest=key.digest if key else "",
                nbytes=key.resident_bytes if key else 0,
                load_s=key.load_s if key else 0.0,
                was_loaded=was_loaded,
            )

    def _load(self, circuit: str, digest: str, loading: _Loading) -> None:
        error: CuzkdError | None = None
        try:
            key = self._loaded(circuit, digest)
            with self._lock:
                self._keys[circuit] = key
        except CuzkdError as raised:
            error = from_code(
                raised.code, str(raised)
            )  # without its frames, which hold the key that was being read
        except Exception as raised:
            error = CuzkdError(f"loading circuit {circuit}: {raised!r}")
        with self._lock:
            del self._loading[circuit]
        if error is None:
            self._tell(circuit)
        else:
            self._reporter.circuit(circuit, loaded=False, digest=digest, error=error)
        loading.error = error
        loading.done.set()

    def _loaded(self, circuit: str, digest: str) -> ResidentKey:
        began = time.monotonic()
        opened = self._open_circuit(circuit)
        if digest not in ("", opened.digest):
            raise InvalidKey(
                f"circuit {circuit}: the job was submitted for key {digest}, installed is {opened.digest}"
            )
        self._set_aside_if(circuit, lambda known: known != opened.digest)
        installed, points = opened.digest, opened.point_bytes
        reservation = self._grants.reserve(opened.head_bytes + points, "key")
        try:
            proving = opened.key
            with self._mutex.held(), on_device("loading a key"):  # the mutex orders keys too
                loaded = opened.load_on(self._backend)
        except BaseException:
            reservation.release()
            raise
        if not self._backend.in_place:
            proving = proving.head()
            del opened
            reservation.shrink(reservation.nbytes - points)
        return ResidentKey(circuit, installed, proving, loaded, reservation, time.monotonic() - began)


def constraint_bytes(proving: KeyHead) -> int:
    constraints = proving.constraints
    return sum(_matrix_bytes(m) for m in (constraints.a, constraints.b, constraints.c) if m is not None)


def _matrix_bytes(matrix: SparseMatrix) -> int:
    return matrix.row_ptr.nbytes + matrix.cols.nbytes + matrix.coeff.nbytes + matrix.table.nbytes
