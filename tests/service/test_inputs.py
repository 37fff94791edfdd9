"""Inputs through a real daemon: submit, calculate, prove, verify; with circom 2's and circom 1's calculators."""

import json
import subprocess
import sys

import pytest
from service.real import VECTORS, Statement, daemon, shows

from cuzkd.circuits.registry import Registry
from cuzkd.client import require_done
from cuzkd.errors import InvalidInput, NotFound, UnsatisfiedWitness
from cuzkd.formats import snarkjs, zkey
from cuzkd.groth16 import verifier

SECRET = 987654321987654321
PRODUCT = {"a": "17", "b": "23"}  # edge_nopub: a * b = 391


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    state = tmp_path_factory.mktemp("inputs") / "state"
    registry = Registry(state)
    vks = {}
    for name in ("edge_nopub", "edge_pub100", "circom1_whitelist"):
        key = VECTORS / name / "circuit.zkey"
        registry.add(name, zkey=key, wasm=VECTORS / name / "circuit.wasm")
        vks[name] = zkey.read(key).vk
    registry.add("bare", zkey=VECTORS / "edge_nopub" / "circuit.zkey")
    with daemon(state) as (running, client):
        yield running, client, vks


def publics(name, n):
    values = (VECTORS / name / "circuit.wtns").read_bytes()[76:]
    return tuple(int.from_bytes(values[i * 32 : i * 32 + 32], "little") for i in range(1, n + 1))


@pytest.mark.parametrize("name", ["edge_nopub", "edge_pub100", "circom1_whitelist"])
def test_inputs_become_proofs(world, name):
    _, client, vks = world
    path = VECTORS / name / "input.json"
    statement = Statement(name, vks[name], path, publics(name, len(vks[name].ic) - 1))
    answer = client.prove(name, inputs=[path, path.read_bytes()])
    assert len(answer.results) == 2 and all(shows(statement, result) for result in answer.results)


def test_witnesses_and_inputs_together(world):
    _, client, vks = world
    folder = VECTORS / "edge_nopub"
    answer = client.prove("edge_nopub", [folder / "circuit.wtns"], inputs=[folder / "input.json"])
    statement = Statement("edge_nopub", vks["edge_nopub"], folder, ())
    assert [shows(statement, result) for result in answer.results] == [True, True]


@pytest.mark.parametrize(
    ("circuit", "document", "error", "says"),
    [
        ("edge_nopub", {**PRODUCT, "b": SECRET}, UnsatisfiedWitness, "partition 0: .* assertion in template"),
        ("edge_nopub", {**PRODUCT, "c": SECRET}, InvalidInput, "signal c: the circuit has no such input"),
        ("edge_nopub", {"a": SECRET}, InvalidInput, "the circuit takes 2 values, got 1: signals are missing"),
        (
            "edge_nopub",
            {**PRODUCT, "\ud800": SECRET},
            InvalidInput,
            "partition 0: .* a name is no Unicode text",
        ),
        (
            "edge_nopub",
            {**PRODUCT, "c": "1" * 5000},
            InvalidInput,
            "at most 4608 are allowed for the 2 values",
        ),
        ("bare", PRODUCT, NotFound, "circuit bare: has no witness calculator"),
    ],
)
def test_answers_to_bad_inputs(world, circuit, document, error, says):
    running, client, _ = world
    with pytest.raises(error, match=says) as caught:
        client.submit(circuit, inputs=[json.dumps(document).encode()])
    assert type(caught.value) is error and str(SECRET) not in str(caught.value)
    assert str(SECRET) not in running.log_file.read_text()


def test_circom1_does_not_see_what_is_missing_but_the_prover_does(world):
    _, client, _ = world
    job = client.submit("circom1_whitelist", inputs=[b'{"key": 5}'])
    with pytest.raises(UnsatisfiedWitness):
        require_done(client.wait(job))


def test_metrics_and_log_tell_of_calculations(world):
    running, client, _ = world
    client.prove("edge_nopub", inputs=[json.dumps(PRODUCT).encode()])
    assert (
        'cuzkd_phase_seconds_count{backend="intake",circuit="edge_nopub",phase="calculation"}'
        in client.metrics()
    )
    event = running.event("witness_calculated")
    assert event["calculate_s"] > 0 and event["circuit"]


def test_on_the_command_line(world, tmp_path):
    running, _, vks = world
    command = [sys.executable, "-P", "-m", "cuzkd.cli", "prove", "edge_pub100", "--address", running.address]
    given = VECTORS / "edge_pub100" / "input.json"
    done = subprocess.run(
        [*command, "--out", str(tmp_path), "--input", str(given)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    vk = vks["edge_pub100"]
    proof = snarkjs.read_proof(tmp_path / "proof.json", vk.curve)
    assert verifier.verify(vk, proof, snarkjs.read_publics(tmp_path / "public.json", vk.curve))
    both = [*command, "--out", str(tmp_path), "--input", str(given), "--witness", str(given)]
    done = subprocess.run(both, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "not allowed with" in done.stderr
