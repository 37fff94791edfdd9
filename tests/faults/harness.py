"""A real daemon that is made to fail, its operator, and the book of what it has promised.

`Place` is a state directory with its daemon: a process of its own, the real engine and prover, the processor, tiny
circuits on both curves, faults by plan. Its operator starts it again whenever it is gone or has stopped.
`Ledger` holds what clients asked for and were promised, and what became of it. The four laws, as `Ledger.settled` and
`Place.end` test them:

    1. every id that was accepted reaches an end, and keeps it;
    2. every proof that was returned verifies, for its own statement;
    3. nothing is proved twice at once (the provers keep book: prover.py);
    4. nothing is left over: no file, no process, no byte of the budget, no descriptor.
"""

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from service.real import VECTORS, Statement, shows
from service.servers import wait_until

from cuzkd.circuits import builtin
from cuzkd.circuits.registry import Registry
from cuzkd.curves.params import CURVES
from cuzkd.engine.job import JobState
from cuzkd.formats import snarkjs, wtns
from cuzkd.groth16 import setup
from cuzkd.service.interceptors import CODE_KEY
from cuzkd.service.v1 import proving_pb2 as pb
from cuzkd.service.v1 import proving_pb2_grpc as rpc

HERE = Path(__file__).resolve().parent
ROUNDS = 20
CALL_S = 10.0
STORY = 30  # lines
ENDS = {
    pb.AwaitProofResponse.COMPLETED: JobState.DONE,
    pb.AwaitProofResponse.FAILED: JobState.FAILED,
    pb.AwaitProofResponse.CANCELLED: JobState.CANCELLED,
}
# What a client does about a refusal: these mean "again", all others "never".
AGAIN = {"unavailable", "exhausted", "internal", "device_fault", ""}

_NUMBERS = itertools.count(1)  # preimages and request_ids: none is like another, whichever test it is of


def table(actions, points):
    """All (action, point) as parameters of a test. Every run tries a tenth: of each action at least one point, of the
    next action another one.
    """
    chosen = {(action, points[3 * i % len(points)]) for i, action in enumerate(actions)}
    cases = [(action, point) for point in points for action in actions]
    chosen |= set(cases[5 : 10 * max(0, len(cases) // 10 - len(chosen)) : 10])
    return [case if case in chosen else pytest.param(*case, marks=pytest.mark.slow) for case in cases]


class Template:
    """A state directory to be copied, and statements about its circuits."""

    def __init__(self, folder):
        self.folder = folder
        registry = Registry(folder / "state")
        self.vks = {}
        for curve in CURVES:
            key = setup.setup(builtin.constraints(curve, ROUNDS))
            registry.install(f"chain-{curve}", key, source="test")
            self.vks[f"chain-{curve}"] = key.vk
        files = VECTORS / "edge_nopub"
        registry.add("product", zkey=files / "circuit.zkey", wasm=files / "circuit.wasm")
        self.vks["product"] = snarkjs.read_vkey(files / "vkey.json")
        self.input = (files / "input.json").read_bytes()

    def chain(self, curve, preimage):
        """A statement; its witness is a file beneath the folder `witnesses`, which clients may name by path."""
        name = hashlib.blake2b(
            b"%d" % preimage, digest_size=8
        ).hexdigest()  # a path is no secret, a witness is
        path = self.folder / "witnesses" / f"{curve}-{name}.wtns"
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            made = path.with_suffix(f".{threading.get_ident()}")
            wtns.write(made, curve, builtin.witness(curve, ROUNDS, preimage))
            made.rename(path)
        name = f"chain-{curve}"
        return Statement(name, self.vks[name], path, (builtin.digest(curve, ROUNDS, preimage),))

    def product(self):
        """Its witness is calculated from inputs."""
        return Statement("product", self.vks["product"], VECTORS / "edge_nopub" / "circuit.wtns", ())


@dataclass
class Ask:
    """What a client wants: a job under a request_id, and how its payloads travel (bytes, upload, path, input)."""

    request_id: str
    statements: list
    way: str = "bytes"
    priority: int = pb.PRIORITY_UNSPECIFIED
    job_id: str = ""  # promised
    refused: str = ""  # the code of a refusal for ever
    cancelled: bool = False  # the client wished it
    may_fail: frozenset = frozenset()  # codes
    end: tuple = ()  # (state, code, proofs), once seen

    @property
    def over(self):
        return bool(self.end or self.refused)


def code_of(error):
    return dict(error.trailing_metadata() or ()).get(CODE_KEY, "")


class Caller:
    """A client that gives up soon: what it does about that is the test's."""

    def __init__(self, address):
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.min_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 200),
        ]
        self._channel = grpc.insecure_channel(address.replace("unix://", "unix:"), options)
        self.stub = rpc.ProvingEngineStub(self._channel)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._channel.close()

    def call(self, name, request, timeout_s=CALL_S):
        return getattr(self.stub, name)(request, timeout=timeout_s, wait_for_ready=True)

    def status(self):
        return self.call("GetStatus", pb.GetStatusRequest())

    def upload(self, data):
        parts = [pb.UploadRequest(header=pb.UploadHeader(size_bytes=len(data))), pb.UploadRequest(data=data)]
        return self.call("Upload", iter(parts)).upload_id

    def request(self, ask):
        partitions = []
        for statement in ask.statements:
            match ask.way:
                case "bytes":
                    partitions.append(pb.Partition(witness=statement.witness.read_bytes()))
                case "upload":
                    partitions.append(pb.Partition(upload_id=self.upload(statement.witness.read_bytes())))
                case "path":
                    partitions.append(pb.Partition(server_path=str(statement.witness)))
                case "input":
                    given = VECTORS / "edge_nopub" / "input.json"
                    partitions.append(pb.Partition(input_json=given.read_bytes()))
        return pb.SubmitProofRequest(
            request_id=ask.request_id,
            circuit_id=ask.statements[0].circuit,
            partitions=partitions,
            priority=ask.priority,
        )

    def submit(self, ask):
        return self.call("SubmitProof", self.request(ask)).job_id

    def wait(self, job_id, timeout_s=1.0):
        request = pb.AwaitProofRequest(job_id=job_id, timeout_ms=round(timeout_s * 1000))
        return self.call("AwaitProof", request)

    def cancel(self, job_id):
        return self.call("CancelProof", pb.CancelProofRequest(job_id=job_id)).was_running


class Ledger:
    """asks: in the order in which clients came. Used by one thread at a time."""

    def __init__(self, template):
        self.template = template
        self.asks = []

    def ask(self, curve, partitions=1, **how):
        """A new one, with content that no other has."""
        statements = [self.template.chain(curve, next(_NUMBERS)) for _ in range(partitions)]
        return self.add(statements, **how)

    def add(self, statements, **how):
        self.asks.append(Ask(f"request-{next(_NUMBERS)}", statements, **how))
        return self.asks[-1]

    def advance(self, caller, patience_s=1.0):
        """One round of every client: submit what has no promise, look after what has no end. What the daemon cannot
        answer now is left for the next round.
        """
        for ask in self.asks:
            if not ask.job_id and not ask.refused:
                self._submit(caller, ask)
        for ask in self.asks:
            if ask.job_id and not ask.end:
                self._look(caller, ask, patience_s)

    def _submit(self, caller, ask):
        try:
            ask.job_id = caller.submit(ask)
        except grpc.RpcError as error:
            if code_of(error) not in AGAIN:
                ask.refused = code_of(error)

    def _look(self, caller, ask, patience_s):
        try:
            answer = caller.wait(ask.job_id, patience_s)
        except grpc.RpcError as error:
            assert code_of(error) != "not_found", (
                f"{ask.request_id}: job {ask.job_id} was accepted, and is lost"
            )
            return
        if answer.status in ENDS:
            ask.end = self._judge(ask, answer)

    def _judge(self, ask, answer):
        """An end as it should be."""
        state, code = ENDS[answer.status], answer.error_code
        said = f"{ask.request_id}: {state.value} {code} {answer.error_message!r}"
        if state is JobState.DONE:
            assert [result.index for result in answer.results] == list(range(len(ask.statements))), said
            for statement, result in zip(ask.statements, answer.results, strict=True):
                assert shows(statement, result), f"{said}: partition {result.index} proves something else"
        elif state is JobState.CANCELLED:
            assert ask.cancelled, f"{said}, and nobody wished it"
        else:
            assert code in ask.may_fail, said
        return state, code, tuple(result.proof for result in answer.results)

    @property
    def open(self):
        return [ask for ask in self.asks if not ask.over]

    def see_through(self, place, patience_s=90.0):
        """Until everything that was asked for has an end, through whatever happens to the daemon."""
        until = time.monotonic() + patience_s
        while self.open:
            if time.monotonic() > until:
                left = [(ask.request_id, ask.job_id) for ask in self.open]
                pytest.fail(f"no end after {patience_s:g} s: {left}; {place.story()}")
            with Caller(place.address) as caller:
                self.advance(caller, 0.5)

    def settled(self, place):
        """Laws 1 to 3, once everything is over."""
        assert not self.open
        with Caller(place.address) as caller:
            for ask in self.asks:
                if ask.job_id:
                    for known in (ask.job_id, ask.request_id):
                        answer = caller.wait(known)
                        assert answer.job_id == ask.job_id, f"{ask.request_id} has become another job"
                        assert self._judge(ask, answer) == ask.end, f"{ask.request_id}: its end has changed"
        begun, twice = place.book()
        assert not twice, f"proved twice at once: {twice}"
        ghosts = {name.partition("/")[0] for name in begun} - {ask.job_id for ask in self.asks}
        assert not ghosts, f"jobs were proved that nobody was promised: {ghosts}"


@dataclass
class Place:
    """folder: of this place alone. device: the processor in disguise (prover.py). The rest is settings."""

    folder: Path
    template: Template
    device: str = ""
    policy: str = "cpu"
    engine: dict = field(default_factory=dict)
    timing: dict = field(default_factory=dict)
    intake: dict = field(default_factory=dict)
    toml: str = ""
    daemon: str = ""  # more of the section [daemon]
    prefix: tuple = ()  # of the command
    max_lives: int = 40
    state: Path = None
    process: subprocess.Popen | None = None
    lives: int = 0

    def __post_init__(self):
        self.state = self.state or self.folder / "state"
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.copytree(self.template.folder / "state", self.state, dirs_exist_ok=True)
        self.address = f"unix://{self.folder / 'd.sock'}"
        self.log_file, self.plan, self.front_plan = (self.folder / n for n in ("log", "plan", "front-plan"))
        self._book = self.folder / "book"
        self._book.touch()
        self._tending = threading.Lock()
        self._gone = threading.Event()  # the operator has gone home
        self._operator = None
        self._write_settings()

    def _write_settings(self):
        prover = [sys.executable, "-P", HERE / "prover.py", self._book, self.device]
        engine = {
            "tick_s": 0.05,
            "heartbeat_s": 4.0,
            "least_stage_s": 4.0,
            "fault": f"@{self.plan}",
            "front_fault": f"@{self.front_plan}",
            "command": [str(word) for word in prover],
            **self.engine,
        }
        timing = {"handshake_s": 20.0, "shutdown_s": 5.0, "first_pause_s": 0.0, "longest_pause_s": 0.2}
        changes = {
            "engine": engine,
            "timing": {**timing, **self.timing},
            "intake": self.intake,
            "report": str(self.folder / "report"),
        }
        (self.folder / "changes").write_text(json.dumps(changes))
        witnesses = self.template.folder / "witnesses"
        witnesses.mkdir(exist_ok=True)
        (self.folder / "toml").write_text(
            f"[daemon]\nlisten = '{self.address}'\nstate_dir = '{self.state}'\ndrain_s = 20\n{self.daemon}\n"
            f"[proving]\npolicy = '{self.policy}'\n[wire]\nserver_folders = ['{witnesses}']\n"
            f"upload_expiry_s = 5\n{self.toml}"
        )

    # -- the daemon --

    def start(self):
        assert self.process is None or self.process.poll() is not None
        self.lives += 1
        assert self.lives <= self.max_lives, f"it dies again and again: {self.story()}"
        (self.folder / "report").unlink(missing_ok=True)
        self._earlier = len(self.log_file.read_text()) if self.log_file.exists() else 0
        command = [*self.prefix, sys.executable, "-P", HERE / "serve.py", self.folder / "changes",
                   "serve", "--config", self.folder / "toml"]  # fmt: skip
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen([*map(str, command)], stderr=log, cwd=self.folder)
        return self

    def serves(self):
        """Until it does."""
        with Caller(self.address) as caller:
            wait_until(lambda: self._is_serving(caller), 60)
        return self

    def _is_serving(self, caller):
        if self._operator is None:
            assert self.process.poll() is None, self.story()
        try:
            return caller.status().serving
        except grpc.RpcError:
            return False

    def _answers(self):
        assert self.process.poll() is None, self.story()
        return '"event": "serving"' in self.log_file.read_text()[self._earlier :]

    def kill(self, number=signal.SIGKILL):
        """Returns the exit status."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        return self.process.wait(60)

    def tend(self):
        """What an operator does at a look: what has stopped is killed, what is gone is started again."""
        with self._tending:
            if self._gone.is_set():
                return
            if self.process.poll() is None and _state(self.process.pid) == "T":
                self.kill()
            if self.process.poll() is not None:
                self.start()

    @contextlib.contextmanager
    def tended(self):
        """An operator looks all the time."""

        def look():
            while not self._gone.wait(0.05):
                self.tend()

        self._gone.clear()
        self._operator = threading.Thread(target=look, daemon=True)
        self._operator.start()
        try:
            yield self
        finally:
            with self._tending:
                self._gone.set()
            self._operator.join()
            self._operator = None

    # -- what it does --

    def acted(self, plan=None):
        """(action, point) of every fault that has been."""
        path = Path(f"{plan or self.plan}.acted")
        return [tuple(line.split()[:2]) for line in path.read_text().splitlines()] if path.exists() else []

    def book(self):
        """(ids of partitions that were begun, lines of what was begun twice at once)."""
        lines = self._book.read_text().splitlines()
        return [line.split()[1] for line in lines if line.startswith("begun")], [
            line for line in lines if line.startswith("twice")
        ]

    def processes(self):
        """{pid: command line} of what this daemon has started and is alive, wherever its parent is."""
        found = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                    line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if str(self.folder) in line and int(folder.name) != os.getpid():
                        found[int(folder.name)] = line
        return {pid: line for pid, line in found.items() if lives(pid)}

    def provers(self):
        return [pid for pid, line in self.processes().items() if "prover.py" in line]

    def children(self):
        """{pid: command line} of what the front has started and is alive: provers and intake processes."""
        found = {}
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for pid in map(int, (task / "children").read_text().split()):
                    line = Path(f"/proc/{pid}/cmdline").read_bytes()
                    found[pid] = line.replace(b"\0", b" ").decode(errors="replace")
        return {pid: line for pid, line in found.items() if lives(pid)}

    def log(self):
        return [json.loads(line) for line in self.log_file.read_text().splitlines() if line.startswith("{")]

    def events(self, name):
        return [line for line in self.log() if line["event"] == name]

    def story(self):
        """The end of its log, for whoever wonders."""
        lines = [line for line in self.log_file.read_text().splitlines() if "_timing" not in line]
        acted = f"acted {self.acted()} {self.acted(self.front_plan)}"
        return "\n".join([f"{self.lives} lives, {acted}", *lines[-STORY:]])

    def spooled(self):
        return sorted(path.name for path in (self.state / "spool").iterdir())

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def idle(self):
        """Law 4 while it runs: its files go soon after their jobs, uploads that no job has taken when they expire."""
        wait_until(lambda: not self.spooled(), 20)

    def end(self):
        """Law 4: stopped by SIGTERM it exits with 0, and nothing of it is left."""
        wait_until(self._answers, 60)  # before it listens, a signal is the end of it at once
        assert self.kill(signal.SIGTERM) == 0, self.story()
        report = json.loads((self.folder / "report").read_text())
        assert report == {"budget": 0, "engines": 1}, f"bytes of the budget are kept: {report}"
        wait_until(lambda: not self.processes(), 5)
        assert not self.spooled(), "files are left in the spool"

    def wreck(self):
        """Whatever is left of it goes; for the end of a test that failed, too."""
        for pid in [*self.processes()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait(30)


def lives(pid):
    return _state(pid) not in "ZX"


def _state(pid):
    """R, S, T (stopped), Z (ended, not reaped) ...; X when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
