"""Circuits come, go and are damaged while a daemon serves: whoever has a key goes on, nobody gets a wrong proof."""

import contextlib
import os
from dataclasses import replace

import grpc
import pytest
from service import real
from service.servers import wait_until

from cuzkd.circuits import builtin
from cuzkd.circuits.registry import Registry
from cuzkd.client import require_done
from cuzkd.errors import InvalidKey, NotFound
from cuzkd.formats import wtns
from cuzkd.groth16 import setup
from cuzkd.service.v1 import proving_pb2 as pb
from cuzkd.service.v1 import proving_pb2_grpc as rpc

ROUNDS = 100


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return real.World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def running(world):
    with real.daemon(world.state) as (daemon, client):
        target = daemon.address.replace("unix://", "unix:")
        with grpc.insecure_channel(target) as channel:
            yield world, daemon, client, rpc.ProvingEngineStub(channel)


@pytest.fixture
def served(running):
    """world, client, stub; afterwards the daemon is the same process with the same prover as before."""
    world, _, client, stub = running
    before = [(p.prover_pid, p.restarts) for p in client.status().devices]
    yield world, client, stub
    assert [(p.prover_pid, p.restarts) for p in client.status().devices] == before


@pytest.fixture
def circuit(world):
    """Installs the built-in chain under a name of its own; a statement about it for each preimage."""
    installed = []

    class Chain:
        def __init__(self, name, curve="bn254", rounds=ROUNDS):
            self.name, self.curve, self.rounds = name, curve, rounds
            key = setup.setup(builtin.constraints(curve, rounds))
            self.vk = key.vk
            self.manifest = Registry(world.state).install(name, key, "test")
            self.folder = world.state / "circuits" / name
            installed.append(name)

        def statement(self, preimage):
            path = world.folder / f"{self.name}-{self.rounds}-{preimage}.wtns"
            wtns.write(path, self.curve, builtin.witness(self.curve, self.rounds, preimage))
            publics = (builtin.digest(self.curve, self.rounds, preimage),)
            return real.Statement(self.name, self.vk, path, publics)

    yield Chain
    for name in installed:
        with contextlib.suppress(NotFound):
            Registry(world.state).remove(name)


def proves(client, statement):
    answer = client.prove(statement.circuit, [statement.witness], 60)
    return real.shows(statement, answer.results[0])


def fails(client, statement):
    answer = client.wait(client.submit(statement.circuit, [statement.witness]), 60)
    assert answer.status == pb.AwaitProofResponse.FAILED, answer
    return answer.error_code, answer.error_message


def tier(client, name):
    tiers = {srs.circuit_id: srs.tier for srs in client.status().loaded_srs}
    return pb.SRSStatus.Tier.Name(tiers[name]) if name in tiers else None


def truncate(path):
    os.truncate(path, 0)


def shorten(path):
    os.truncate(path, path.stat().st_size - 1)


def overwrite(path):
    with open(path, "r+b") as file:
        file.write(b"\xff" * path.stat().st_size)


def swap_points(path):
    """As long as before, every point on the curve: what digests are for."""
    data = bytearray(path.read_bytes())
    data[-8192:-4096], data[-4096:] = data[-4096:], data[-8192:-4096]
    path.write_bytes(data)


def other_file(path):
    path.with_name("new").write_bytes(b"another key")
    os.replace(path.with_name("new"), path)


def delete(path):
    path.unlink()


DEEDS = [
    (truncate, "bytes by its manifest, found 0"), (shorten, "bytes by its manifest"), (overwrite, "were altered"),
    (swap_points, "(section h_g1) were altered"), (other_file, "by its manifest, found 11"),
    (delete, "cannot be read: No such file"),
]  # fmt: skip


@pytest.mark.parametrize(("deed", "words"), DEEDS)
def test_a_key_file_that_is_damaged_while_its_key_is_used(served, circuit, deed, words):
    """Jobs with the loaded key are unaffected, running and later; once it has to be read again, they fail, clearly."""
    world, client, stub = served
    chain, other = circuit("damaged"), world.chain("bls12_381", 5)
    statements = [chain.statement(i) for i in range(8)]
    assert proves(client, statements[0])
    job = client.submit("damaged", [s.witness for s in statements])
    deed(chain.folder / "key.bin")
    answer = require_done(client.wait(job, 60))
    assert all(real.shows(s, result) for s, result in zip(statements, answer.results, strict=True))
    assert proves(client, statements[1])  # a later one, too
    assert stub.EvictSRS(pb.EvictSrsRequest(circuit_id="damaged"), timeout=60).was_loaded
    for _ in range(2):
        code, message = fails(client, statements[2])
        assert code == InvalidKey.code and "damaged/key.bin: " in message and words in message
        assert proves(client, other)
    with pytest.raises(grpc.RpcError) as refused:
        stub.PreloadSRS(pb.PreloadSrsRequest(circuit_id="damaged"), timeout=60)
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    Registry(world.state).remove("damaged")
    assert proves(client, circuit("damaged").statement(3))  # added again, it is sound again


def test_a_circuit_that_is_added_is_served_and_one_that_is_removed_is_let_go(served, circuit):
    world, client, _ = served
    early = real.Statement("late", None, world.chain("bn254", 1).witness, ())
    with pytest.raises(NotFound):
        client.submit(early.circuit, [early.witness])
    chain = circuit("late")
    assert chain.manifest.digest in {c.digest for c in client.circuits()}
    assert proves(client, chain.statement(1))
    assert 'cuzkd_circuit_resident_bytes{circuit="late"' in client.metrics()
    Registry(world.state).remove("late")
    with pytest.raises(NotFound):
        client.submit("late", [chain.statement(2).witness])
    wait_until(lambda: 'cuzkd_circuit_resident_bytes{circuit="late"' not in client.metrics())
    assert tier(client, "late") is None
    assert proves(client, world.chain("bn254", 2))


def test_a_circuit_that_is_replaced_proves_the_new_statement(served, circuit):
    world, client, stub = served
    old = circuit("changing")
    assert proves(client, old.statement(1))
    Registry(world.state).remove("changing")
    new = circuit("changing", rounds=ROUNDS + 20)
    assert proves(client, new.statement(1))
    assert fails(client, replace(new.statement(1), witness=old.statement(1).witness))[0] == "invalid_witness"
    Registry(world.state).remove("changing")
    newest = circuit("changing", curve="bls12_381")
    done = stub.PreloadSRS(pb.PreloadSrsRequest(circuit_id="changing"), timeout=60)
    assert not done.already_loaded  # what is loaded is the key before
    assert stub.PreloadSRS(pb.PreloadSrsRequest(circuit_id="changing"), timeout=60).already_loaded
    assert proves(client, newest.statement(2))


def test_jobs_that_were_accepted_for_a_removed_circuit_come_to_an_end(served, circuit):
    """With the key that is loaded they are proved; nothing is let go that a job counts on."""
    world, client, _ = served
    chain = circuit("going", rounds=400)
    statements = [chain.statement(i) for i in range(12)]
    assert proves(client, statements[0])
    jobs = [client.submit("going", [s.witness for s in statements]) for _ in range(3)]
    Registry(world.state).remove("going")
    for job in jobs:
        answer = require_done(client.wait(job, 120))
        assert all(real.shows(s, result) for s, result in zip(statements, answer.results, strict=True))
    wait_until(lambda: 'cuzkd_circuit_resident_bytes{circuit="going"' not in client.metrics())


def test_tiers_are_true(served, circuit):
    _, client, stub = served
    chain = circuit("tiers")
    assert tier(client, "tiers") == "WARM"  # written a moment ago
    with open(chain.folder / "key.bin", "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if tier(client, "tiers") == "WARM":
        pytest.skip("this file system keeps its pages whatever it is advised")
    assert tier(client, "tiers") == "COLD"
    assert not stub.PreloadSRS(pb.PreloadSrsRequest(circuit_id="tiers"), timeout=60).already_loaded
    assert tier(client, "tiers") == "HOT"
    evicted = stub.EvictSRS(pb.EvictSrsRequest(circuit_id="tiers"), timeout=60)
    assert evicted.was_loaded and evicted.freed_bytes > 0
    assert tier(client, "tiers") == "WARM"


def test_evicting_waits_for_those_who_prove(served, circuit):
    _, client, stub = served
    chain = circuit("busy", rounds=400)
    statements = [chain.statement(i) for i in range(6)]
    assert proves(client, statements[0])
    for _ in range(3):
        job = client.submit("busy", [s.witness for s in statements])
        assert stub.EvictSRS(pb.EvictSrsRequest(circuit_id="busy"), timeout=120).was_loaded
        answer = require_done(client.wait(job, 120))
        assert all(real.shows(s, result) for s, result in zip(statements, answer.results, strict=True))
        assert proves(client, statements[1])


def test_many_circuits_come_and_go_while_jobs_run(served, circuit):
    world, client, _ = served
    for number in range(6):
        steady = world.chain("bn254", 100 + number)
        job = client.submit(steady.circuit, [steady.witness])
        chain = circuit(f"passing-{number}", curve=("bn254", "bls12_381")[number % 2], rounds=20)
        assert proves(client, chain.statement(number))
        Registry(world.state).remove(chain.name)
        assert real.shows(steady, require_done(client.wait(job, 60)).results[0])
    wait_until(lambda: 'cuzkd_circuit_resident_bytes{circuit="passing-' not in client.metrics())
