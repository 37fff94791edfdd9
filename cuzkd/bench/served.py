"""A daemon of one's own, for benches that look at it from outside: a process, its state, its clients.

Problem: what a client sees of a daemon (how long calls take, what a restart costs) shows only when it runs as it does
in production, and it must be possible to kill it.
Design: `cuzkd serve` as a child that dies with us, on a socket and a state directory that go away at the end. All that
is known of it is what anybody may know: its calls, and what the kernel tells of its processes. Every proof that it
answers is verified here, against the witness that was sent.

Life: opened(...) -> install(a key) -> start -> submit, prove, kill, start again -> the block's end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc

from cuzkd import demo
from cuzkd.backend.protocol import Backend
from cuzkd.bench.subject import Provable
from cuzkd.circuits.registry import Registry
from cuzkd.client import Client, require_done
from cuzkd.errors import CuzkdError, DeviceFault, Unavailable
from cuzkd.formats import proof_bytes, wtns
from cuzkd.groth16.keys import ProvingKey, StreamedKey
from cuzkd.service import listen
from cuzkd.service.v1 import proving_pb2 as pb
from cuzkd.service.v1 import proving_pb2_grpc as rpc

START_TIMEOUT_S = 300.0  # with kernels to be compiled
STOP_TIMEOUT_S = 60.0
JOB_TIMEOUT_S = 600.0
LOOK_EVERY_S = 0.002
MAX_RESTARTS = 3  # of the prover, before it is clear that it will not start
LOG_LINES = 20  # of the daemon's log, when it fails
Settings = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Processes:
    """Seconds of processor time that the front and the provers have used so far."""

    front_s: float
    prover_s: float

    def since(self, before: Processes) -> Processes:
        return Processes(self.front_s - before.front_s, self.prover_s - before.prover_s)


class Daemon:
    """See the module docstring. settings: as in a configuration file, by section. client: there while it runs."""

    def __init__(self, folder: Path, sockets: Path, backend: Backend, settings: Settings) -> None:
        self.state = folder / "state"
        self.address = f"unix://{sockets}/cuzkd.sock"
        self.target = listen.parse(self.address, "address").target
        self.client: Client
        self._policy = "require" if backend.name == "cuda" else "cpu"
        self._socket = sockets / "cuzkd.sock"
        self._log = folder / "log"
        self._settings = folder / "cuzkd.toml"
        self._settings.write_text(_toml(settings))
        self._process: subprocess.Popen[bytes] | None = None
        self._open = contextlib.ExitStack()  # client and channel

    # -- the process --

    def start(self) -> None:
        """Start it, and return when it serves. Raises Unavailable when it does not."""
        command = [sys.executable, "-P", "-c", demo.SERVE, str(os.getpid()), "serve"]
        command += [
            "--config",
            str(self._settings),
            "--state-dir",
            str(self.state),
            "--listen",
            self.address,
            "--policy",
            self._policy,
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_TIMEOUT_S
        self._wait_until_it_answers(deadline)
        self.client = self._open.enter_context(Client(self.address))
        self._wait_until_it_serves(deadline)

    def _wait_until_it_answers(self, deadline: float) -> None:
        """At its socket first: a channel that finds nobody waits a second before it tries again."""
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.connect(str(self._socket))
                return
            if self._running().poll() is not None:
                raise Unavailable(f"the daemon ended at its start{self._last_words()}")
            time.sleep(LOOK_EVERY_S)
        raise Unavailable(f"the daemon does not answer{self._last_words()}")

    def _wait_until_it_serves(self, deadline: float) -> None:
        status = self.client.status()
        while not status.serving:
            if time.monotonic() > deadline or any(d.restarts >= MAX_RESTARTS for d in status.devices):
                raise Unavailable(f"the daemon cannot serve: {status.not_serving_reason}{self._last_words()}")
            time.sleep(LOOK_EVERY_S)
            status = self.client.status()

    def stop(self) -> None:
        """As systemd would. Raises CuzkdError when it does not obey, or not with 0."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise CuzkdError(f"the daemon did not end within {STOP_TIMEOUT_S:.0f} s of SIGTERM") from None
        finally:
            self.kill()
        if code:
            raise CuzkdError(f"the daemon ended with exit code {code}{self._last_words()}")

    def kill(self) -> None:
        """kill -9, of the front alone. Idempotent."""
        self._open.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def said(self, event: str, since: int = 0) -> tuple[list[dict[str, Any]], int]:
        """What whole lines of its log tell of an event, from a byte on; and at which byte they end. They come some time
        after what they tell of.
        """
        with self._log.open("rb") as log:
            log.seek(since)
            text = log.read()
        text = text[: text.rfind(b"\n") + 1]
        records = [json.loads(line) for line in text.splitlines() if line.startswith(b"{")]
        return [record for record in records if record.get("event") == event], since + len(text)

    def provers(self) -> list[int]:
        """Their process ids: one for each device."""
        return [device.prover_pid for device in self.client.status().devices]

    def kill_provers(self) -> None:
        for pid in self.provers():
            os.kill(pid, signal.SIGKILL)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Its provers are stopped for the block, and go on after it."""
        stopped = self.provers()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def processor_time(self) -> Processes:
        return Processes(_processor_s(self._running().pid), sum(map(_processor_s, self.provers())))

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise Unavailable("the daemon is not running")
        return self._process

    def _last_words(self) -> str:
        return "".join(f"\n  {line}" for line in self._log.read_text().splitlines()[-LOG_LINES:])

    # -- jobs --

    def install(self, bed: Provable) -> None:
        """Its key as a circuit of the daemon's, checked like any other."""
        key = bed.key
        if not isinstance(key, ProvingKey):  # it came into being on a device
            key = _fetched(bed)
        Registry(self.state).install(bed.name, key, source="a bench's own")

    def channel(self) -> grpc.Channel:
        """One more connection, closed with the client."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        return self._open.enter_context(grpc.insecure_channel(self.target, options=options))

    def prove(self, bed: Provable, number: int) -> pb.AwaitProofResponse:
        """Witness `number` as a job of its own, from a file to a proof that has been verified here."""
        return self.proved(bed, self.client.submit(bed.name, [bed.witness(number)]), [number])

    def proved(self, bed: Provable, job_id: str, numbers: Sequence[int]) -> pb.AwaitProofResponse:
        """Wait for a job of these witnesses. Raises what it failed of, and as require_right."""
        answer = ended(self.client, job_id)
        require_right(bed, answer, numbers)
        return answer


@contextmanager
def opened(backend: Backend, folder: Path | None, settings: Settings) -> Iterator[Daemon]:
    """A daemon, not yet started, for a block. folder: where its state goes (default: where temporary files go)."""
    with (
        tempfile.TemporaryDirectory(prefix="cuzkd-bench-", dir=folder) as place,
        tempfile.TemporaryDirectory(prefix="cuzkd-bench-") as sockets,  # their names may not be long
    ):
        daemon = Daemon(Path(place), Path(sockets), backend, settings)
        try:
            yield daemon
        finally:
            daemon.kill()


def stub(channel: grpc.Channel) -> rpc.ProvingEngineStub:
    """The bare calls, for those that are measured."""
    return rpc.ProvingEngineStub(channel)


def ended(client: Client, job_id: str) -> pb.AwaitProofResponse:
    """A job that was completed. Raises what it failed of, Exhausted when it takes for ever."""
    return require_done(client.wait(job_id, JOB_TIMEOUT_S))


def submission(bed: Provable, witness: bytes, priority: pb.Priority = pb.NORMAL) -> pb.SubmitProofRequest:
    request = pb.SubmitProofRequest(circuit_id=bed.name, priority=priority)
    request.partitions.add(witness=witness)
    return request


def require_right(bed: Provable, answer: pb.AwaitProofResponse, numbers: Sequence[int]) -> None:
    """Raises DeviceFault unless there is a proof for each of these witnesses, with its public values, that verifies."""
    if len(answer.results) != len(numbers):
        raise DeviceFault(f"job {answer.job_id}: expected {len(numbers)} proofs, got {len(answer.results)}")
    for result, number in zip(answer.results, numbers, strict=True):
        proof = proof_bytes.decode(bed.key.vk.curve, result.proof)
        publics = [int.from_bytes(value, "big") for value in result.public_inputs]
        if publics != _publics(bed, number):
            raise DeviceFault(
                f"job {answer.job_id}: proof {result.index} is not of the witness that was sent"
            )
        bed.require_valid(proof, publics, f"job {answer.job_id}, proof {result.index}")


def _publics(bed: Provable, number: int) -> list[int]:
    size = wtns.N8
    with wtns.map(bed.witness(number)) as file:
        values = bytes(file.values[size : size * (1 + bed.key.arrays.n_public)])
    return [int.from_bytes(values[begin : begin + size], "little") for begin in range(0, len(values), size)]


def _fetched(bed: Provable) -> StreamedKey:
    from cuzkd.backend import cuda
    from cuzkd.groth16 import device_setup

    return device_setup.fetch(bed.key, cast(cuda.CudaKey, bed.loaded))


def _processor_s(pid: int) -> float:
    """User and system time of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _toml(settings: Settings) -> str:
    """Numbers, texts and lists of texts are written alike in JSON and TOML."""
    lines = []
    for section, values in settings.items():
        lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"
