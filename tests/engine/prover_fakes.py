"""A prover's surroundings for tests: a front that keeps a real budget, a tiny circuit in plain ints,
a scripted backend.

The circuit: y = x * x over bn254, wires [1, y, x], y public. The fake sums carry y, as the backend finds it in its
vectors when it "computes", and the fake verification compares it with the public input: a proof of another partition,
or of vectors that were reused too early, does not verify.
"""

import contextlib
import socket
import threading
import time
from types import SimpleNamespace

import numpy as np

from cuzkd.backend.protocol import KeyArrays, MsmSums, Span, SparseMatrix, Vram, nothing
from cuzkd.curves.params import CURVES
from cuzkd.engine.channel import Channel
from cuzkd.engine.fleet.budget_desk import BudgetDesk
from cuzkd.engine.prover.residency import constraint_bytes
from cuzkd.engine.prover.workers import Parts, Workers
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import Cancelled, NotFound
from cuzkd.formats import wtns
from cuzkd.groth16.keys import Proof
from cuzkd.memory.hints import CapacityHints
from cuzkd.memory.upstream import PagesUpstream

CURVE = "bn254"
R = CURVES[CURVE].r
MONT = 1 << 256


def limbs(values):
    return np.frombuffer(b"".join(v.to_bytes(32, "little") for v in values), np.uint64).reshape(-1, 4).copy()


def ints(rows):
    return [int.from_bytes(row.tobytes(), "little") for row in rows]


def matrix(rows, n_cols):
    """rows: lists of (wire, small integer)."""
    entries = [entry for row in rows for entry in row]
    values = [1, -1, *sorted({value for _, value in entries} - {1, -1})]
    return SparseMatrix(
        n_cols,
        np.cumsum([0, *map(len, rows)]).astype(np.uint64),
        np.array([wire for wire, _ in entries], np.uint32),
        np.array([values.index(value) for _, value in entries], np.uint32),
        limbs([value * MONT * MONT % R for value in values]),
    )


def square_circuit(digest="d1", with_c=True, log_domain=2, padding=0):
    """y = x * x, and `padding` more wires that nothing uses, to make z large."""
    n_wires = 3 + padding
    a, b, c = [[(2, 1)], [(0, 1)], [(1, 1)]], [[(2, 1)], [], []], [[(1, 1)], [], []]
    points = {name: np.zeros((n_wires, 2, 4), np.uint64) for name in ("a_g1", "b_g1")}
    arrays = KeyArrays(
        curve=CURVE,
        root_family=5,
        reduction="circom",
        log_domain=log_domain,
        n_wires=n_wires,
        n_public=1,
        b_g2=np.zeros((n_wires, 2, 2, 4), np.uint64),
        l_g1=np.zeros((n_wires - 2, 2, 4), np.uint64),
        h_g1=np.zeros((1 << log_domain, 2, 4), np.uint64),
        n_rows=3,
        **points,
    )
    constraints = SimpleNamespace(
        a=matrix(a, n_wires), b=matrix(b, n_wires), c=matrix(c, n_wires) if with_c else None
    )
    key = SimpleNamespace(vk=None, arrays=arrays, constraints=constraints)
    key.head = lambda: key

    def load_on(backend, turn):
        with turn():
            return backend.load_key(arrays)

    return SimpleNamespace(
        key=key,
        head=key,
        loading_bytes=lambda backend: arrays.host_bytes,
        digest=digest,
        head_bytes=constraint_bytes(key),
        point_bytes=arrays.host_bytes,
        load_on=load_on,
    )


def charge(circuit):
    """Bytes of the host budget that its key takes."""
    return circuit.key.arrays.host_bytes + constraint_bytes(circuit.key)


def write_square(path, x, y=None, one=1, padding=0, curve=CURVE):
    wtns.write(path, curve, [one, x * x % R if y is None else y, x, *[0] * padding])
    return str(path)


class PlainHost:
    """backend/cpu.py's services in plain ints."""

    def copy_witness(self, curve, raw, out):
        values = ints(np.frombuffer(raw, np.uint64).reshape(-1, 4))
        for index, value in enumerate(values):
            if value >= CURVES[curve].r:
                return index
        out[:] = limbs(values)
        return -1

    def spmv_into(self, curve, m, z, out, row_begin, row_end):
        for row in range(row_begin, row_end):
            span = range(int(m.row_ptr[row]), int(m.row_ptr[row + 1]))
            terms = [ints(m.table[m.coeff[i]][None])[0] * ints(z[m.cols[i]][None])[0] for i in span]
            out[row] = limbs([sum(terms) * pow(MONT, -1, R) % R])[0]

    def first_mismatch(self, curve, a, b, c, begin, end):
        for row in range(begin, end):
            left, right, product = (ints(vector[row][None])[0] for vector in (a, b, c))
            if left * right * pow(MONT, -1, R) % R != product:
                return row
        return -1


class HeldHost(PlainHost):
    """Copies the witness of y = x * x only when it may: `hold(x)`, then `let(x)`. began: squares, as they came."""

    def __init__(self):
        self._gates = {}
        self.began = []

    def hold(self, *xs):
        self._gates |= {x * x: threading.Event() for x in xs}

    def let(self, *xs):
        for x in xs:
            self._gates[x * x].set()

    def let_all(self):
        for gate in self._gates.values():
            gate.set()

    def copy_witness(self, curve, raw, out):
        square = ints(np.frombuffer(raw, np.uint64).reshape(-1, 4)[1:2])[0]
        self.began.append(square)
        if square in self._gates:
            assert self._gates[square].wait(60)
        return super().copy_witness(curve, raw, out)


class ScriptedBackend:
    """Computes nothing; takes its time, and can be held. `result_gate`: results wait for it.

    sets: how many were launched at a time. full: how often memory of the device does not suffice, by what is done.
    evaluates: it makes a and b itself, and of a witness that is no square something that is not its product.
    """

    name, device, device_name = "scripted", "scripted-0", "a fake"
    takes_pieces = False

    def __init__(self, in_place=True, evaluates=False):
        self.in_place = self.scratch_c = in_place
        self.evaluates = evaluates
        self.host_bytes, self.one_at_a_time = 0, False  # of its keys
        self.result_gate = threading.Event()
        self.result_gate.set()
        self.free_early = False  # the device is free before a result is there
        self.uploaded = 0
        self.launched = []
        self.sets = []
        self.full = {}
        self.trims = 0
        self.free_bytes, self.total_bytes = 1 << 20, 1 << 30
        self.loads = 0
        self.running = 0
        self.most_running = 0

    def vector_rows(self, key):
        return key.domain if self.in_place else key.n_rows

    def vram(self):
        return Vram() if self.in_place else Vram(self.free_bytes, self.total_bytes)

    def trim(self):
        self.trims += 1

    def fill(self, doing):
        if self.full.get(doing):
            self.full[doing] -= 1
            raise MemoryError(f"no room for {doing}")

    def load_key(self, key):
        self.fill("key")
        self.loads += 1
        return SimpleNamespace(
            arrays=key,
            resident_bytes=key.h_g1.nbytes,
            host_bytes=self.host_bytes,
            one_at_a_time=self.one_at_a_time,
            close=lambda: None,
        )

    def keep_matrices(self, key, a, b):
        assert a.n_rows == b.n_rows == key.arrays.n_rows
        return self.evaluates

    def upload(self, key, a, b, c, z):
        assert (c is not None) == self.scratch_c
        if self.evaluates and a is None:
            self.fill("upload")
            self.uploaded += 1
            return SimpleNamespace(z=z.copy(), a=None, wait=lambda: None)
        rows = self.vector_rows(key.arrays)
        for vector in (a, b, c) if self.in_place else (a, b):
            assert vector.shape == (rows, 4)
        assert not a[3:].any() and not b[3:].any()
        self.fill("upload")
        self.uploaded += 1
        kept = z if self.in_place else z.copy()
        return SimpleNamespace(z=kept, a=a if self.in_place else None, wait=lambda: None)

    def launch(self, upload):
        self.fill("launch")
        self.sets.append(1)
        return ScriptedRun(self, upload)

    def launch_batch(self, uploads):
        assert not self.in_place and len(uploads) > 1
        self.fill("batch")
        self.sets.append(len(uploads))
        return [ScriptedRun(self, upload) for upload in uploads]

    def result(self, upload):
        self.fill("result")
        point = np.zeros((2, 4), np.uint64)
        a = point.copy()
        a[0] = upload.z[1]
        x, y = (ints(upload.z[wire][None])[0] for wire in (2, 1))
        if self.evaluates and x * x % R != y:
            a[0, 3] ^= np.uint64(1)
        if upload.a is not None:
            upload.a[:] = 7  # works in place
        twice = np.zeros((2, 2, 4), np.uint64)
        moved = 0 if self.in_place else 96
        spans = [Span("ntt_h", "compute", 0.0, 0.001), Span("msm_h", "compute", 0.001, 0.002)]
        return MsmSums(a, point, twice, point, point, spans, h2d_bytes=moved)


class ScriptedRun:
    """Counts as running until it has a result or is cancelled."""

    def __init__(self, backend, upload):
        self._backend, self._upload = backend, upload
        self._cancelled = threading.Event()
        backend.launched.append(ints(upload.z[1][None])[0])
        backend.running += 1
        backend.most_running = max(backend.most_running, backend.running)

    def cancel(self):
        self._cancelled.set()

    def result(self, device_free=nothing):
        if self._backend.free_early:
            device_free()
            device_free()
        while not self._backend.result_gate.wait(0.005) and not self._cancelled.is_set():
            pass
        self._backend.running -= 1
        if self._cancelled.is_set():
            raise Cancelled("cancelled on the device")
        return self._backend.result(self._upload)


class PlainGroth16:
    def __init__(self):
        self.blinding = []

    def assemble(self, key, sums, r, s):
        self.blinding += [r, s]
        return Proof(CURVE, sums.a_g1, sums.b_g2, sums.h_g1)

    def verify(self, vk, proof, publics):
        return ints(proof.a[:1]) == list(publics[:1])


class Front:
    """The other end: answers grants from a real Budget, keeps everything that it is told."""

    def __init__(self, limit_bytes=64 << 20):
        self.desk = BudgetDesk(limit_bytes, short_of=lambda nbytes: None)
        self.desk.open("prover")
        self.budget = self.desk.budget
        self.socket, self.theirs = socket.socketpair()
        self.channel = Channel(self.socket, wire.FromProver)
        self.heard = []
        self.ended = threading.Event()
        self._changed = threading.Condition()
        self._sequence = 0
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self):
        while (message := self.channel.receive()) is not None:
            kind = message.WhichOneof("kind")
            if kind == "grant_request":
                self.desk.ask("prover", message.grant_request, lambda grant: self.send(grant=grant))
            elif kind == "grant_return":
                self.desk.give_back("prover", message.grant_return.bytes)
            with self._changed:
                self.heard.append(message)
                self._changed.notify_all()
        self.ended.set()
        with self._changed:
            self._changed.notify_all()

    def send(self, **kind):
        with contextlib.suppress(OSError):
            self.channel.send(wire.ToProver(**kind))

    def offer(self, partition_id, path, circuit="square", digest="d1", priority=2):
        self._sequence += 1
        self.send(
            offer=wire.Offer(
                partition_id=partition_id,
                circuit=circuit,
                circuit_digest=digest,
                spool_path=str(path),
                priority=priority,
                sequence=self._sequence,
                attempt=1,
            )
        )

    def all(self, kind):
        with self._changed:
            return [getattr(m, kind) for m in self.heard if m.WhichOneof("kind") == kind]

    def wait(self, fact, timeout_s=60):
        """Until fact() is true; it is asked again after every message."""
        with self._changed:
            assert self._changed.wait_for(fact, timeout_s), self.heard[-5:]

    def answers(self):
        """partition id -> PartitionDone or PartitionFailed; every id at most once."""
        found = {}
        for answer in [*self.all("done"), *self.all("failed")]:
            assert answer.partition_id not in found, f"{answer.partition_id} was answered twice"
            found[answer.partition_id] = answer
        return found

    def answer(self, *ids, timeout_s=60):
        self.wait(lambda: all(one in self.answers() for one in ids), timeout_s)
        found = [self.answers()[one] for one in ids]
        return found[0] if len(ids) == 1 else found

    def barrier(self):
        """Until the prover has handled everything that was sent before."""
        name = f"barrier-{len(self.heard)}"
        self.send(drop=wire.Drop(circuit=name))
        self.wait(lambda: any(state.circuit == name for state in self.all("circuit")))

    def stages(self, partition_id):
        return [event.stage for event in self.all("event") if event.partition_id == partition_id]

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self.socket.close()
        self.theirs.close()


class InProcess:
    """Workers in this process, over a socketpair, with fakes below them."""

    def __init__(
        self,
        backend=None,
        circuits=None,
        limit_bytes=64 << 20,
        hints=None,
        host=None,
        selftest=lambda curve: None,
        groth16=None,
        upstream=None,
        **configure,
    ):
        self.front = Front(limit_bytes)
        self.backend = backend or ScriptedBackend()
        self.circuits = circuits if circuits is not None else {"square": square_circuit()}
        self.groth16 = groth16 or PlainGroth16()
        self.left = []
        self.device_is_right = True  # what the canary says
        options = {"max_parallel_synthesis": 2, "ready_target": 2, "wipe": True} | configure
        parts = Parts(
            self.backend,
            host or PlainHost(),
            self.groth16,
            upstream or PagesUpstream(),
            self._open,
            lambda curve: CURVES[curve].r,
            CapacityHints(hints),
            lambda curve: self.device_is_right,
            selftest,
        )
        channel = Channel(self.front.theirs, wire.ToProver)
        self.workers = Workers(channel, wire.Configure(**options), parts, leave=self.left.append)
        self._thread = threading.Thread(target=self.workers.run, daemon=True)
        self._thread.start()

    def _open(self, name):
        if name not in self.circuits:
            raise NotFound(f"circuit {name}: not here")
        return self.circuits[name]

    def idle(self):
        """Nothing leased, nothing held."""
        stats = self.workers.pool.stats()
        return stats.leased_bytes == stats.quarantined_bytes == 0 and not self.workers._mutex.busy

    def wait_idle(self):
        for _ in range(1000):
            if self.idle():
                return
            time.sleep(0.005)
        raise AssertionError(self.workers.pool.stats())

    def close(self):
        self.front.send(shutdown=wire.Shutdown())
        self._thread.join(10)
        assert not self._thread.is_alive()
        self.workers.pool.close()
        self.front.close()
