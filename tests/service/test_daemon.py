"""The whole daemon from outside: command line, sockets, signals, pages, logs; every proof checked on its own."""

import concurrent.futures
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from service import real
from service.servers import wait_until

from cuzkd import cli, errors
from cuzkd.client import Client, require_done
from cuzkd.curves.params import CURVES
from cuzkd.daemon import notify
from cuzkd.service.v1 import proving_pb2 as pb

SECRET = 0x5EC12E70FAC11E47


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return real.World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def running(world):
    with real.daemon(world.state, "--metrics", "127.0.0.1:0") as (daemon, client):
        yield daemon, client


def page(daemon, name):
    address = daemon.event("serving")["metrics"]
    with urllib.request.urlopen(f"http://{address}{name}", timeout=10) as answer:
        return answer.read().decode()


def test_prove_and_verify_from_the_command_line(running, world, tmp_path, capsys):
    daemon, _ = running
    for name in real.REAL:
        statement, out = world.real(name), tmp_path / name
        code = cli.main(["prove", name, "--witness", str(statement.witness), "--address", daemon.address,
                         "--out", str(out)])  # fmt: skip
        assert code == 0 and "1 verified proof in" in capsys.readouterr().out
        assert (out / "public.json").read_text() == (real.VECTORS / name / "public.json").read_text()
        files = ["--proof", str(out / "proof.json"), "--public", str(out / "public.json")]
        assert cli.main(["verify", "--vkey", str(real.VECTORS / name / "vkey.json"), *files]) == 0


def test_several_witnesses_are_one_job(running, world, tmp_path, capsys):
    daemon, _ = running
    paths = [str(world.chain("bn254", preimage).witness) for preimage in (1, 2, 3)]
    code = cli.main(["prove", "chain-bn254", "--witness", *paths[:2], "--witness", paths[2],
                     "--address", daemon.address, "--out", str(tmp_path)])  # fmt: skip
    assert code == 0 and "3 verified proofs in" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(f"proof_{i}.json" for i in range(3)), *(f"public_{i}.json" for i in range(3)),
    ]  # fmt: skip
    assert cli.main(["status", "--address", daemon.address]) == 0
    out = capsys.readouterr().out
    assert "serving" in out and "merkle_1k" in out and "idle" in out


def test_keys_come_and_go_by_the_command_line(running, capsys):
    daemon, _ = running
    address = ["chain-bn254", "--address", daemon.address]
    assert cli.main(["evict", *address]) == 0
    capsys.readouterr()
    for command, says in (
        ("evict", "was not loaded"), ("preload", "loaded in "), ("preload", "was loaded"), ("evict", " freed"),
    ):  # fmt: skip
        assert cli.main([command, *address]) == 0
        assert says in capsys.readouterr().out
    assert cli.main(["preload", "nope", "--address", daemon.address]) == 2
    assert "circuit nope: not in" in capsys.readouterr().err


def test_a_job_that_fails_is_exit_code_1_or_2(running, world, tmp_path, capsys):
    daemon, _ = running
    address = ["--address", daemon.address, "--out", str(tmp_path)]
    witness = str(world.chain("bls12_381", 5).witness)
    assert cli.main(["prove", "chain-bn254", "--witness", witness, *address]) == 2
    assert cli.main(["prove", "nope", "--witness", witness, *address]) == 2
    assert cli.main(["prove", "chain-bn254", "--witness", str(tmp_path / "none"), *address]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and all(line.startswith("cuzkd: ") for line in lines)
    assert not list(tmp_path.iterdir())


def test_await_times_out_and_then_has_the_result(running, world):
    _, client = running
    statements = [world.chain("bls12_381", 10 + i) for i in range(4)]
    job = client.submit("chain-bls12_381", [s.witness for s in statements])
    assert client.wait(job, 0.001).status == pb.AwaitProofResponse.TIMEOUT
    answer = require_done(client.wait(job))
    assert all(real.shows(s, result) for s, result in zip(statements, answer.results, strict=True))


def test_bad_witnesses_have_their_own_errors_and_harm_nobody(running, world):
    _, client = running
    good = world.chain("bn254", 21)
    raw = good.witness.read_bytes()
    flipped = bytearray(raw)
    flipped[-32] ^= 1
    too_large = raw[:-32] + CURVES["bn254"].r.to_bytes(32, "little")
    cases = {
        "malformed_file": [raw[:-1], raw[:40], b"", b"not a witness"],
        "invalid_witness": [too_large, world.chain("bls12_381", 21).witness.read_bytes(),
                            world.real("edge_nopub").witness.read_bytes()],
        "unsatisfied_witness": [bytes(flipped)],
    }  # fmt: skip
    messages = set()
    for code, witnesses in cases.items():
        for witness in witnesses:
            answer = client.wait(client.submit("chain-bn254", [witness]))
            assert (answer.status, answer.error_code) == (pb.AwaitProofResponse.FAILED, code), answer
            messages.add(answer.error_message)
            assert real.shows(good, client.prove("chain-bn254", [good.witness]).results[0])
    assert len(messages) >= 6, "each says what was wrong with it"


def test_twenty_clients_at_once(running, world):
    """Mixed circuits and curves: every proof belongs to its own statement."""
    daemon, _ = running
    rng = random.Random(7)

    def statements(i):
        kind = i % 4
        if kind == 0:
            return [world.real(real.REAL[(i // 4) % len(real.REAL)])]
        curve = ("bn254", "bls12_381")[kind % 2]
        return [world.chain(curve, rng.randrange(1 << 60)) for _ in range(1 + i % 3)]

    wanted = [statements(i) for i in range(20)]

    def one_client(own):
        with Client(daemon.address) as client:
            return client.prove(own[0].circuit, [s.witness for s in own], 120).results

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(one_client, wanted))
    for own, results in zip(wanted, answers, strict=True):
        assert [result.index for result in results] == list(range(len(own)))
        assert all(real.shows(statement, result) for statement, result in zip(own, results, strict=True))


def test_a_witness_by_server_path_needs_leave(world, tmp_path):
    file = tmp_path / "c.toml"
    file.write_text(f"[wire]\nserver_folders = ['{world.folder}']\n")
    statement = world.chain("bn254", 31)
    with real.daemon(world.state.parent / "state2", "--config", file, socket="p.sock") as (_, client):
        world_registry = world.state / "circuits"
        subprocess.run(["cp", "-r", world_registry, world.state.parent / "state2"], check=True)
        partition = pb.Partition(server_path=str(statement.witness))
        request = pb.SubmitProofRequest(circuit_id="chain-bn254", partitions=[partition])
        answer = require_done(client.wait(client._stub.SubmitProof(request).job_id))
        assert real.shows(statement, answer.results[0])


def test_a_killed_prover_is_replaced_and_its_jobs_complete(running, world):
    _, client = running
    statements = 5 * [world.chain("bls12_381", 100 + i) for i in range(12)]  # not over before the kill
    job = client.submit("chain-bls12_381", [s.witness for s in statements])
    wait_until(lambda: next(client.watch(job)).partitions_done >= 1)
    (before,) = client.status().devices
    os.kill(before.prover_pid, signal.SIGKILL)
    answer = require_done(client.wait(job, 120))
    assert all(real.shows(s, result) for s, result in zip(statements, answer.results, strict=True))
    (after,) = client.status().devices
    assert after.prover_pid != before.prover_pid and after.restarts == before.restarts + 1
    assert max(result.attempts for result in answer.results) > 1


def test_phases_are_in_reply_metrics_and_log(running, world):
    daemon, client = running
    result = client.prove("chain-bn254", [world.chain("bn254", 41).witness]).results[0]
    phases = {phase.name: phase.seconds for phase in result.phases}
    expected = {"queue_wait", "witness", "synthesis", "gpu_wait", "ntt_h", "msm_h", "msm_l", "msm_a", "msm_b_g1",
                "msm_b_g2", "assembly", "verify", "total"}  # fmt: skip
    assert expected <= phases.keys() and all(seconds >= 0 for seconds in phases.values())
    assert result.backend == "cpu" and re.fullmatch("[0-9a-f]{64}", result.key_digest)
    text = page(daemon, "/metrics")
    for name in expected:
        assert re.search(rf'^cuzkd_\w*phase\w*_count{{[^}}]*phase="{name}"[^}}]*}} [1-9]', text, re.M), name
    assert client.metrics().splitlines()[0] == text.splitlines()[0]
    shown = json.loads(page(daemon, "/status"))
    assert (
        shown["proofs_completed"] >= 1 and shown["counters"]["completed_by_kind"]["circuit:chain-bn254"] >= 1
    )
    assert shown["pipelines"][-1]["partitions"][0]["state"] == "done" and shown["journal"]["records"] >= 2
    wait_until(lambda: cuzkd_value(page(daemon, "/metrics"), "cuzkd_serving") == 1)
    assert cuzkd_value(text, "cuzkd_journal_failing") == 0
    for event in ("gpu_timing", "fin_timing"):
        assert daemon.event(event)
    timing = daemon.event("gpu_timing")
    assert 0 < timing["kernels_busy_s"] <= timing["kernels_end_s"] - timing["kernels_begin_s"] + 1e-5
    busy = r'cuzkd_device_busy_seconds_total{prover="prover-0"}'  # told with the next heartbeat
    wait_until(lambda: f"{busy} 0.0\n" not in (now := page(daemon, "/metrics")) and busy in now)


def test_nothing_is_left_in_the_spool_and_no_secret_in_the_log(running, world):
    daemon, client = running
    statement = world.chain("bn254", SECRET)
    assert real.shows(statement, client.prove("chain-bn254", [statement.witness]).results[0])
    bad = bytearray(statement.witness.read_bytes())
    bad[-32] ^= 1
    client.wait(client.submit("chain-bn254", [bytes(bad)]))
    wait_until(lambda: not list((world.state / "spool").iterdir()))
    text = daemon.log_file.read_text() + page(daemon, "/status") + page(daemon, "/metrics")
    for form in (
        str(SECRET),
        f"{SECRET:x}",
        SECRET.to_bytes(8, "little").hex(),
        repr(SECRET.to_bytes(8, "little")),
    ):
        assert form.lower() not in text.lower()


# -- life --


@pytest.mark.parametrize("hurry", [False, True])
def test_a_job_goes_on_in_the_next_daemon(world, tmp_path, hurry):
    """What the prover holds may end, the rest is handed back; whoever waits finds its job again."""
    statement = world.real("merkle_1k_bls12381")
    shutil.copytree(world.state / "circuits", tmp_path / "state" / "circuits")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with real.daemon(tmp_path / "state") as (daemon, client):
            job = client.submit(statement.circuit, [statement.witness] * 40)
            wait_until(lambda: next(client.watch(job)).partitions_done >= 1)
            waiting = pool.submit(lambda: client_at(daemon.address).wait(job))
            daemon.process.send_signal(signal.SIGTERM)
            if hurry:
                daemon.event("draining")
                daemon.process.send_signal(signal.SIGTERM)
            assert daemon.process.wait(60) == 0
            assert daemon.event("engine_stopped")["handed_back_jobs"] == 1
        assert not waiting.done()
        with real.daemon(tmp_path / "state") as (daemon, client):
            started = daemon.event("engine_started")
            assert started["resumed_jobs"] == 1
            answer = require_done(waiting.result(120))
            assert len(answer.results) == 40
            assert all(real.shows(statement, result) for result in answer.results)
            assert require_done(client.wait(job)).proof == answer.proof
            assert cuzkd_value(client.metrics(), "cuzkd_jobs_resumed_total") == 1


def client_at(address):
    return Client(address, patience_s=120)


def cuzkd_value(text, name):
    return float(re.search(rf"^{name} (\S+)$", text, re.M)[1])


def test_a_drain_takes_no_new_work_and_still_answers(world, tmp_path):
    statement = world.real("merkle_1k_bls12381")
    shutil.copytree(world.state / "circuits", tmp_path / "state" / "circuits")
    file = tmp_path / "c.toml"
    file.write_text("[proving]\nthreads = 1\n")
    with real.daemon(tmp_path / "state", "--config", file) as (daemon, client):
        done = client.submit(statement.circuit, [statement.witness], request_id="done")
        first = require_done(client.wait(done)).proof
        job = client.submit(statement.circuit, [statement.witness] * 40)
        wait_until(lambda: next(client.watch(job)).state == "proving")
        with pytest.raises(errors.Unavailable, match="draining"):
            daemon.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "draining" in client.status().not_serving_reason)
            assert client.submit(statement.circuit, [statement.witness], request_id="done") == done
            assert client.wait("done").proof == first
            client.submit(statement.circuit, [statement.witness])
        assert daemon.process.wait(60) == 0


def test_systemd_hears_of_it(tmp_path):
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(path))
        channel.settimeout(60)
        with real.daemon(tmp_path / "state", environ={"NOTIFY_SOCKET": str(path)}) as (daemon, _):
            assert channel.recv(4096).startswith(b"READY=1\nSTATUS=listening on unix:")
            daemon.process.terminate()
            assert channel.recv(4096) == b"STOPPING=1"
            assert daemon.process.wait(30) == 0


def test_without_systemd_nobody_is_told():
    assert notify("READY=1", {}.get) is False
    assert notify("READY=1", {"NOTIFY_SOCKET": "/nonexistent/socket"}.get) is False


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (["--listen", "0.0.0.0:0"], 2, "no TLS and no token"),
        (["--listen", "nowhere"], 2, "expected unix://PATH or HOST:PORT"),
        (["--metrics", "unix:///x"], 2, "HOST:PORT"),
        (["--state-dir", "/proc/nope"], 2, "state directory"),
    ],
)
def test_what_cannot_start_says_why_in_one_line(tmp_path, flags, code, says):
    command = [
        "serve",
        "--state-dir",
        str(tmp_path / "s"),
        "--listen",
        f"unix://{tmp_path}/x",
        "--log-level",
        "error",
    ]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "cuzkd.cli", *command, *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code
    assert says in done.stderr and done.stderr.startswith("cuzkd: ") and done.stderr.count("\n") == 1


def test_one_daemon_for_a_state_directory(running, world, tmp_path):
    command = [
        "serve",
        "--state-dir",
        str(world.state),
        "--listen",
        f"unix://{tmp_path}/x",
        "--log-level",
        "error",
    ]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "cuzkd.cli", *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2 and "another daemon uses it" in done.stderr
