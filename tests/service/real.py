"""A real daemon: its own process, the real engine and prover, real circuits. And what its proofs must show."""

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from service.servers import wait_until

from cuzkd.circuits import builtin
from cuzkd.circuits.registry import Registry
from cuzkd.client import Client
from cuzkd.curves.params import CURVES
from cuzkd.errors import Unavailable
from cuzkd.formats import proof_bytes, snarkjs, wtns
from cuzkd.groth16 import setup, verifier
from cuzkd.groth16.keys import VerifyingKey

VECTORS = Path(__file__).resolve().parent.parent / "vectors"
REAL = ("merkle_1k", "merkle_1k_bls12381", "edge_nopub", "edge_pub100")
ROUNDS = 60


@dataclass(frozen=True)
class Statement:
    """A circuit, a witness for it, and the public values that its proof must show."""

    circuit: str
    vk: VerifyingKey
    witness: Path
    publics: tuple[int, ...]


class World:
    """A state directory with circuits on both curves, and statements about them."""

    def __init__(self, folder, rounds=ROUNDS):
        self.folder = folder
        self.state = folder / "state"
        self.rounds = rounds
        registry = Registry(self.state)
        self.vks = {}
        for curve in CURVES:
            key = setup.setup(builtin.constraints(curve, rounds))
            registry.install(f"chain-{curve}", key, source="test")
            self.vks[curve] = key.vk
        for name in REAL:
            registry.add(name, zkey=VECTORS / name / "circuit.zkey", vkey=VECTORS / name / "vkey.json")

    def chain(self, curve, preimage):
        path = self.folder / f"{curve}-{preimage:x}.wtns"[-80:]
        wtns.write(path, curve, builtin.witness(curve, self.rounds, preimage))
        publics = (builtin.digest(curve, self.rounds, preimage),)
        return Statement(f"chain-{curve}", self.vks[curve], path, publics)

    def real(self, name):
        vk = snarkjs.read_vkey(VECTORS / name / "vkey.json")
        publics = snarkjs.read_publics(VECTORS / name / "public.json", vk.curve)
        return Statement(name, vk, VECTORS / name / "circuit.wtns", tuple(publics))


def shows(statement, result):
    """Does a PartitionResult prove this statement, and not the one beside it?"""
    publics = [int.from_bytes(value, "big") for value in result.public_inputs]
    proof = proof_bytes.decode(statement.vk.curve, result.proof)
    if publics != list(statement.publics) or not verifier.verify(statement.vk, proof, publics):
        return False
    if publics:
        assert not verifier.verify(statement.vk, proof, [publics[0] ^ 1, *publics[1:]])
    return True


class Daemon:
    """A running `cuzkd serve`."""

    def __init__(self, process, log, address):
        self.process = process
        self.log_file = log
        self.address = address

    def log(self):
        return [json.loads(line) for line in self.log_file.read_text().splitlines()]

    def event(self, name):
        """The first event of this name, waited for."""
        return wait_until(lambda: [line for line in self.log() if line["event"] == name])[0]


@contextlib.contextmanager
def daemon(state, *flags, environ=None, socket="d.sock"):
    """Starts it, waits until it serves, and ends it at the latest with the block."""
    state.mkdir(parents=True, exist_ok=True)
    address = f"unix://{state.parent / socket}"
    log = state.parent / f"{socket}.log"
    command = [
        sys.executable,
        "-P",
        "-m",
        "cuzkd.cli",
        "serve",
        "--state-dir",
        state,
        "--listen",
        address,
        *flags,
    ]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*map(str, command), "--policy", "cpu"], stderr=stream, env={**os.environ, **(environ or {})}
        )
    try:
        with Client(address) as client:
            wait_until(lambda: _serves(client, process, log), 60)
            yield Daemon(process, log, address), client
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
            process.wait()


def _serves(client, process, log):
    assert process.poll() is None, log.read_text()
    try:
        return client.status().serving
    except Unavailable:
        return False
