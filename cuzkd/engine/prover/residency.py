"""Keys loaded in this prover: each once, kept until dropped, never closed under a partition that uses it.

A key is loaded by a thread of its own. Who asked for it waits, and may stop waiting: the key then comes all the same,
for the next one, unless its memory has not been granted and nobody else wants it.

A key is charged to the host budget before it is read ("key", the bytes of its arrays, or of what passes them on to a
device piece by piece), and read while proofs go on. Once a device has its own copy, the charge shrinks to what
synthesis and assembly use, nearly all of it the constraint matrices, and to points that the device has no room for.
When the device has no room, keys that nobody uses give way. Several partitions that need the same key load it once. A
circuit that was removed and added again under the same name has another digest: the old key is set aside when the new
one is asked for, and closed when its last user is gone.

Lock order: `_telling` comes before the table's lock. Neither is held while a key is loaded or a grant awaited; the
table's is not held while a message is sent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Protocol

from cuzkd.backend.protocol import Backend, LoadedKey, SparseMatrix
from cuzkd.engine.faults import NoFaults
from cuzkd.engine.prover.device import DeviceMutex, on_device
from cuzkd.engine.prover.report import Reporter
from cuzkd.errors import Cancelled, CuzkdError, DeviceFault, Exhausted, InvalidKey, NeverFits, from_code
from cuzkd.groth16.keys import KeyHead
from cuzkd.memory.budget import RECHECK_S, Grants, Reserved


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

    @property
    def head(self) -> KeyHead:
        """The key without its points. The same of it."""

    def loading_bytes(self, backend: Backend) -> int:
        """Host memory that load_on takes while it works, and what the loaded key keeps of it."""

    def load_on(self, backend: Backend, turn: Callable[[], AbstractContextManager[object]]) -> LoadedKey:
        """Its points on a device, where they may be already. turn(): a block in which the device is the caller's."""


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
        evaluates: bool = False,
    ) -> None:
        """evaluates: the device has the constraint matrices, and makes a and b from z."""
        self.circuit = circuit
        self.digest = digest
        self.proving = proving
        self.loaded = loaded
        self.reservation = reservation
        self.load_s = load_s
        self.evaluates = evaluates
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
    """A key on its way, and how many wait for it. When it is done it has a key, which counts each of them as a user; or
    an error; or neither, when nobody wanted it at some moment.
    """

    def __init__(self, digest: str) -> None:
        self.digest = digest
        self.waiting = 0
        self.done = threading.Event()
        self.key: ResidentKey | None = None
        self.error: CuzkdError | None = None


def _thread(name: str, work: Callable[[], object]) -> None:
    threading.Thread(target=work, name=name, daemon=True).start()


class Residency:
    def __init__(
        self,
        open_circuit: Callable[[str], Openable],
        backend: Backend,
        mutex: DeviceMutex,
        grants: Grants,
        reporter: Reporter,
        faults: NoFaults | None = None,
        selftest: Callable[[str], None] = lambda curve: None,
        start: Callable[[str, Callable[[], object]], object] = _thread,
        evaluate: bool = False,
    ) -> None:
        """selftest(curve): called with the mutex held, before a key of it goes to the device; raises DeviceFault.
        start(name, work): a thread; what work raises is a fault of the device that nobody waited for.
        evaluate: the device is to make a and b, where that pays.
        """
        self._open_circuit = open_circuit
        self._backend = backend
        self._mutex = mutex
        self._grants = grants
        self._reporter = reporter
        self._faults = faults or NoFaults()
        self._selftest = selftest
        self._start = start
        self._evaluate = evaluate
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

    def use(self, circuit: str, digest: str = "", check: Callable[[], None] = lambda: None) -> ResidentKey:
        """The key, loaded if need be; `done_with` ends the use. Blocks; check is called now and then, and may raise.

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
                loading.waiting += 1
            if mine:
                self._begin(circuit, loading)
            key = self._outcome(loading, check)
            if key is not None and digest in ("", key.digest):
                return key
            if key is not None:
                self.done_with(key)
            if loading.error is not None and loading.digest == digest:
                raise from_code(loading.error.code, str(loading.error))

    def _outcome(self, loading: _Loading, check: Callable[[], None]) -> ResidentKey | None:
        """Wait for it. The key, if there is one, counts the caller as a user."""
        try:
            while not loading.done.wait(RECHECK_S):
                check()
        except BaseException:
            with self._lock:
                loading.waiting -= 1
                key = loading.key
            if key is not None:  # it came at the same moment
                self.done_with(key)
            raise
        return loading.key

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

    def evict_idle(self, but: str = "") -> None:
        """Let go of all keys that nobody uses, except this circuit's."""
        with self._lock:
            idle = [key for key in self._keys.values() if not key.users and key.circuit != but]
        for key in idle:
            self._set_aside_if(key.circuit, lambda known: True, idle=True)

    def _set_aside_if(
        self, circuit: str, chosen: Callable[[str], bool], idle: bool = False
    ) -> ResidentKey | None:
        """Take a key whose digest is chosen out of the table, one without users where it is to be idle; it is closed
        now, or by its last user.
        """
        with self._lock:
            key = self._keys.get(circuit)
            if key is None or not chosen(key.digest) or (idle and key.users):
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

    def _begin(self, circuit: str, loading: _Loading) -> None:
        try:
            self._start("key", partial(self._load, circuit, loading))
        except (RuntimeError, MemoryError) as error:  # whoever waits must not wait for ever
            self._settle(circuit, loading, None, Exhausted(f"loading circuit {circuit}: no thread: {error}"))

    def _load(self, circuit: str, loading: _Loading) -> None:
        """In a thread of its own, whatever comes of it."""
        key: ResidentKey | None = None
        error: CuzkdError | None = None
        try:
            key = self._loaded(circuit, loading)
        except Cancelled:
            pass  # nobody wanted it
        except CuzkdError as raised:  # without its frames, which hold the key that was being read
            error = from_code(raised.code, str(raised))
        except MemoryError as raised:
            error = Exhausted(f"loading circuit {circuit}: out of host memory: {raised}")
        except Exception as raised:
            error = CuzkdError(f"loading circuit {circuit}: {raised!r}")
        wanted = self._settle(circuit, loading, key, error)
        if isinstance(error, DeviceFault) and not wanted:
            raise error

    def _settle(
        self, circuit: str, loading: _Loading, key: ResidentKey | None, error: CuzkdError | None
    ) -> bool:
        """Tell everybody what became of it. Did anybody wait?"""
        with self._lock:
            del self._loading[circuit]
            wanted = loading.waiting > 0
            if key is not None:
                key.users = loading.waiting
                self._keys[circuit] = loading.key = key
        if error is None:
            self._tell(circuit)
        else:
            self._reporter.circuit(circuit, loaded=False, digest=loading.digest, error=error)
        loading.error = error
        loading.done.set()
        return wanted

    def _loaded(self, circuit: str, loading: _Loading) -> ResidentKey:
        began, digest = time.monotonic(), loading.digest
        self._faults.at("key")
        opened = self._open_circuit(circuit)
        if digest not in ("", opened.digest):
            raise InvalidKey(
                f"circuit {circuit}: the job was submitted for key {digest}, installed is {opened.digest}"
            )
        self._set_aside_if(circuit, lambda known: known != opened.digest)
        in_place = self._backend.in_place
        installed = opened.digest
        points = opened.point_bytes if in_place else opened.loading_bytes(self._backend)
        reservation = self._grants.reserve(
            opened.head_bytes + points, "key", give_up=lambda: not loading.waiting
        )
        try:
            proving: KeyHead = opened.key if in_place else opened.head
            loaded = self._on_device(circuit, opened, proving)
            try:
                evaluates = self._evaluate and self._keep_matrices(loaded, proving)
            except BaseException:
                loaded.close()  # host memory that it keeps is the driver's, too
                raise
        except BaseException:
            reservation.release()
            raise
        if not in_place:
            del opened
            reservation.shrink(reservation.nbytes - points + loaded.host_bytes)
        load_s = time.monotonic() - began
        return ResidentKey(circuit, installed, proving, loaded, reservation, load_s, evaluates)

    def _on_device(self, circuit: str, opened: Openable, proving: KeyHead) -> LoadedKey:
        """Raises Exhausted, or NeverFits, with both numbers when the device has no room for it."""
        with suppress(Exhausted):
            return self._try(opened, proving)
        self.evict_idle()
        with on_device("giving memory back", self._backend.device):
            self._backend.trim()
        try:
            return self._try(opened, proving)
        except Exhausted as error:
            vram, need = self._backend.vram(), proving.arrays.points_bytes
            if not vram.total_bytes:
                raise
            if self._backend.takes_pieces:  # then some of them may stay on the host
                need = max(0, need - self._backend.kept_bytes(proving.arrays))
            kind = NeverFits if need > vram.total_bytes else Exhausted
            raise kind(
                f"circuit {circuit}: its key takes {need} bytes of device memory; {vram.free_bytes} of "
                f"{vram.total_bytes} bytes are free, and no other key is idle ({error})"
            ) from None

    def _keep_matrices(self, loaded: LoadedKey, proving: KeyHead) -> bool:
        constraints = proving.constraints
        with self._mutex.held(), on_device("loading matrices", self._backend.device):
            return self._backend.keep_matrices(loaded, constraints.a, constraints.b)

    def _try(self, opened: Openable, proving: KeyHead) -> LoadedKey:
        @contextmanager
        def turn() -> Iterator[None]:
            with self._mutex.held():  # which orders keys, too
                self._selftest(proving.arrays.curve)
                yield

        with on_device("loading a key", self._backend.device):
            return opened.load_on(self._backend, turn)


def constraint_bytes(proving: KeyHead) -> int:
    constraints = proving.constraints
    return sum(_matrix_bytes(m) for m in (constraints.a, constraints.b, constraints.c) if m is not None)


def _matrix_bytes(matrix: SparseMatrix) -> int:
    return matrix.row_ptr.nbytes + matrix.cols.nbytes + matrix.coeff.nbytes + matrix.table.nbytes
