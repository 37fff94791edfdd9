"""The same promise for the daemon: what it sends for real keys convinces snarkjs, and bent it convinces nobody."""

import json
import signal
import subprocess
import sys
import time

import pytest
from conformance.conftest import real_keys
from conformance.test_snarkjs_agrees import agree, bent

from cuzkd.circuits.registry import Registry
from cuzkd.client import Client
from cuzkd.errors import Unavailable
from cuzkd.formats import proof_bytes, snarkjs, zkey

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def daemon(request, tmp_path_factory):
    """(client, {circuit: .zkey}) of a daemon, on the CPU, that has every real key."""
    folder = tmp_path_factory.mktemp("daemon")
    keys = {f"key{i}": path for i, path in enumerate(real_keys(request.config))}
    for name, path in keys.items():
        vkey = path.with_name("vkey.json")
        Registry(folder / "state").add(name, zkey=path, vkey=vkey if vkey.exists() else None)
    address = f"unix://{folder}/s"
    command = [
        sys.executable,
        "-P",
        "-m",
        "cuzkd.cli",
        "serve",
        "--state-dir",
        str(folder / "state"),
        "--listen",
        address,
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--policy", "cpu"], stdin=subprocess.DEVNULL, stderr=log, stdout=log
        )
    try:
        with Client(address) as client:
            wait_until_serving(client, process, folder / "log")
            yield client, keys
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def wait_until_serving(client, process, log):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if client.status().serving:
                return
        except Unavailable:
            pass
        time.sleep(0.3)
    raise AssertionError(f"the daemon does not serve: {log.read_text()[-2000:]}")


def test_real_keys(daemon, call_snarkjs):
    client, keys = daemon
    jobs = {name: client.submit(name, [path.with_suffix(".wtns")] * 2) for name, path in keys.items()}
    cases = []
    for name, job in jobs.items():
        path = keys[name]
        vk = zkey.read(path).vk
        vkey = json.loads(snarkjs.vkey_to_json(vk))
        answer = client.wait(job, 240)
        assert not answer.error_code, answer.error_message
        first, second = answer.results
        assert first.proof != second.proof  # r and s are fresh
        for result in (first, second):
            proof = json.loads(snarkjs.proof_to_json(proof_bytes.decode(vk.curve, result.proof)))
            publics = [str(int.from_bytes(value, "big")) for value in result.public_inputs]
            cases.append((f"{path}", vkey, proof, publics, True))
        cases += [(f"{path}, {what}", vkey, p, v, False) for what, p, v in bent(vk.curve, proof, publics)]
    agree(call_snarkjs, cases)
