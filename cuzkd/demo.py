"""The demo: a real daemon, a real job, independent checks, a table of times; nothing left behind.

Problem: whoever installs cuzkd wants to know within a minute whether all of it works here.
Design: in a folder of its own: the built-in circuit, a development key (random secrets, thrown away), witnesses, and a
daemon as a separate process with the same command line as in production. The replies are verified once more on this
side, with keys that never went through the daemon, and one of them is spoilt to see that verification can say no.
Life of data: everything lives below one temporary folder that goes away at the end, and also when the demo is
terminated; when it is killed, its daemon dies with it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cuzkd import terminal
from cuzkd.circuits import builtin
from cuzkd.circuits.registry import Registry
from cuzkd.client import Client, require_done
from cuzkd.curves import params
from cuzkd.engine.job import PHASES
from cuzkd.errors import CuzkdError, DeviceFault, Unavailable
from cuzkd.formats import proof_bytes, wtns
from cuzkd.groth16 import setup, verifier
from cuzkd.groth16.keys import VerifyingKey
from cuzkd.service.v1 import proving_pb2 as pb

START_TIMEOUT_S = 120.0
# The daemon's command line, in a process that the kernel kills when we die.
SERVE = """
import sys
from cuzkd.engine import process
process.die_with(int(sys.argv.pop(1)))
from cuzkd import cli
sys.exit(cli.main())
"""
MAX_RESTARTS = 3  # of the prover, before it is clear that it will not start
JOB_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Statement:
    """A circuit on one curve, the files with witnesses for it, and what their digests must be."""

    curve: str
    name: str
    vk: VerifyingKey
    n_constraints: int
    witnesses: tuple[Path, ...]
    digests: tuple[int, ...]


def run(curve: str, n_partitions: int, n_rounds: int, policy: str) -> int:
    """Run it and print what happened. curve: a name, or "both". Returns 0, or 1 when anything was not right."""
    curves = list(params.CURVES) if curve == "both" else [curve]
    with _terminable(), tempfile.TemporaryDirectory(prefix="cuzkd-demo-") as folder:
        state = Path(folder) / "state"
        statements = [_prepare(state, Path(folder), name, n_rounds, n_partitions) for name in curves]
        for statement in statements:
            print(f"circuit {statement.name}: {statement.n_constraints:,} constraints, a development key")
        address = f"unix://{folder}/cuzkd.sock"
        with (
            _daemon(state, address, policy, Path(folder) / "log") as daemon,
            Client(address, patience_s=0) as client,
        ):
            status = _wait_until_serving(client, daemon)
            device = status.devices[0]
            print(f"daemon {daemon.pid} serves on {device.backend}: {device.name or device.device}\n")
            jobs = [client.submit(statement.name, statement.witnesses) for statement in statements]
            answers = [require_done(client.wait(job, JOB_TIMEOUT_S)) for job in jobs]
            for statement, answer in zip(statements, answers, strict=True):
                _check(statement, answer)
    print("\n" + _phase_table(statements, answers))
    n_proofs = sum(len(answer.results) for answer in answers)
    print(f"\n{n_proofs} proofs made by the daemon, verified by it, and verified again here.")
    return 0


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the block as an exception, so that it is left tidily."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _prepare(state: Path, folder: Path, curve: str, n_rounds: int, n_partitions: int) -> Statement:
    name = f"chain-{curve}"
    constraints = builtin.constraints(curve, n_rounds)
    key = setup.setup(constraints)
    manifest = Registry(state).install(name, key, source="built in")
    witnesses, digests = [], []
    for i in range(n_partitions):
        preimage = secrets.randbelow(params.CURVES[curve].r)
        witnesses.append(folder / f"{name}-{i}.wtns")
        wtns.write(witnesses[-1], curve, builtin.witness(curve, n_rounds, preimage))
        digests.append(builtin.digest(curve, n_rounds, preimage))
    return Statement(curve, name, key.vk, manifest.n_constraints, tuple(witnesses), tuple(digests))


@contextlib.contextmanager
def _daemon(state: Path, address: str, policy: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon process with its log in a file. Ends it like systemd would; what it says matters only on failure."""
    command = [sys.executable, "-P", "-c", SERVE, str(os.getpid())]
    command += ["serve", "--state-dir", str(state), "--listen", address]
    with log.open("wb") as stream:
        process = subprocess.Popen([*command, "--policy", policy], stdin=subprocess.DEVNULL, stderr=stream)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise CuzkdError(f"the daemon did not end within {STOP_TIMEOUT_S:.0f} s of SIGTERM") from None
        if code:
            raise CuzkdError(f"the daemon ended with exit code {code}")
    except CuzkdError:
        sys.stderr.write("".join(f"daemon: {line}\n" for line in log.read_text().splitlines()[-20:]))
        raise
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _wait_until_serving(client: Client, daemon: subprocess.Popen[bytes]) -> pb.GetStatusResponse:
    deadline = time.monotonic() + START_TIMEOUT_S
    reason = "it does not answer"
    while time.monotonic() < deadline:
        if daemon.poll() is not None:
            raise Unavailable(f"the daemon ended at its start, with exit code {daemon.returncode}")
        try:
            status = client.status()
        except Unavailable:
            time.sleep(0.1)
            continue
        if status.serving:
            return status
        reason = status.not_serving_reason
        if any(device.restarts >= MAX_RESTARTS for device in status.devices):
            break
        time.sleep(0.1)
    raise Unavailable(f"the daemon cannot serve: {reason}")


def _check(statement: Statement, answer: pb.AwaitProofResponse) -> None:
    """Verify every proof of an answer. Raises DeviceFault when one is not what was asked for."""
    if len(answer.results) != len(statement.digests):
        raise DeviceFault(
            f"{statement.name}: expected {len(statement.digests)} proofs, got {len(answer.results)}"
        )
    for result, digest in zip(answer.results, statement.digests, strict=True):
        proof = proof_bytes.decode(statement.curve, result.proof)
        publics = [int.from_bytes(value, "big") for value in result.public_inputs]
        valid = publics == [digest] and verifier.verify(statement.vk, proof, publics)
        spoilt = (digest + 1) % params.CURVES[statement.curve].r
        if not valid or verifier.verify(statement.vk, proof, [spoilt]):
            raise DeviceFault(f"{statement.name}: proof {result.index} does not show its own statement")
        print(
            f"{statement.name} #{result.index}: {len(result.proof)} bytes, digest {digest:#x}"[:70]
            + "...  verified"
        )


def _phase_table(statements: list[Statement], answers: list[pb.AwaitProofResponse]) -> str:
    """Milliseconds of every phase: the middle and the longest of each curve's partitions."""
    times: list[dict[str, list[float]]] = []
    for answer in answers:
        found: dict[str, list[float]] = {}
        for result in answer.results:
            for phase in result.phases:
                found.setdefault(phase.name, []).append(phase.seconds)
        times.append(found)
    names = [name for name in PHASES if any(name in found for found in times)]
    head, rows = ["phase, ms"], [[name] for name in names]
    for statement, found in zip(statements, times, strict=True):
        head += [f"{statement.curve} median", "longest"]
        for row in rows:
            values = found.get(row[0])
            row += [
                terminal.milliseconds(pick(values) if values else None) for pick in (statistics.median, max)
            ]
    return terminal.table(head, rows)
